package engine

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// reloads are the settings that an engine was opened from.
type reloads struct {
	from Options
	mu   sync.Mutex
	last *config.Config // those in force
}

// Reloaded says what a Reload did, by the keys of settings.
type Reloaded struct {
	Changed []string // now in force
	Held    []string // they differ from those in force, which stay until the engine is opened again
}

// Reload reads the settings of the engine again. Limits, and the lists and policies of what is
// allowed, are in force at once: for requests, sessions and connections to come. docs/config.md
// marks them. Live sessions keep their limits. Connections to a domain that is no longer open are
// closed within a second. Other settings stay, and are listed. The audit log gets what has changed,
// without secrets. If the settings cannot be read, one is illegal, or the change cannot be recorded,
// nothing changes. It fails with invalid_argument, also for an engine that was opened by [New].
func (e *Engine) Reload() (Reloaded, error) {
	if e.reloads == nil {
		return Reloaded{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the engine was not opened from settings").
			WithHint("open it with Open, Create, FromEnv or FromYAML")
	}
	r := e.reloads
	r.mu.Lock()
	defer r.mu.Unlock()
	done, err := e.reload(r)
	if err != nil {
		if failed := e.recordReload(sandboxmcp.AuditEntry{Detail: "refused: " + string(sandboxmcp.CodeOf(err))}, err); failed != nil {
			e.log.Error("record a reload that failed", "error", failed)
		}
		return Reloaded{}, err
	}
	return done, nil
}

// reload is Reload without its lock and the record of failures.
func (e *Engine) reload(r *reloads) (Reloaded, error) {
	read, err := r.from.Settings.load()
	if err != nil {
		return Reloaded{}, err
	}
	next, err := r.last.Reloaded(read)
	if err == nil {
		err = checkKeys(next.WorkspacePath, read, r.from.Settings.File)
	}
	if err == nil {
		err = checkCommands(next.WorkspacePath, next)
	}
	if err != nil {
		return Reloaded{}, err
	}
	cfg := r.from.configured(next)
	rules, err := e.host.ParseRules(cfg.HostAllowed, cfg.HostBlocked)
	if err != nil {
		return Reloaded{}, err
	}
	done := Reloaded{Changed: next.Changed(r.last, true), Held: read.Changed(next, false)}
	if err = e.vault.SetNamespaces(cfg.namespaces()); err != nil {
		return Reloaded{}, err
	}
	if err = e.recordReload(describeReload(done, r.last, next), nil); err != nil {
		return Reloaded{}, err
	}
	e.apply(cfg, rules)
	r.last = next
	return done, nil
}

// apply puts what a Reload replaces into force.
func (e *Engine) apply(next Config, rules host.Rules) {
	next.setDefaults()
	e.inForce.Store(&next)
	e.host.SetRules(rules)
	e.host.Files.SetRoots(next.HostRoots)
	e.limits.SetRules(next.Limits, next.Ceilings)
	e.queue.SetBounds(next.MaxConcurrent, next.MaxQueued)
	e.setKnown(&next)
	e.egress.SetRules(networkRules(&next))
	e.web.SetAllow(next.WebAllow)
	e.packages.SetPolicy(packagePolicy(next.Packages, next.PackagesAllow, next.PackagesDeny, next.PackagesMinAge))
	e.asks.SetApprovals(next.Packages == string(packages.Ask))
	e.sessions.SetBounds(next.MaxSessions, next.known(), next.Holders)
	e.copies.SetBytes(e.copiesConfig().Bytes)
	e.keeper.SetBounds(next.KeepFor, next.KeepBytes)
}

// describeReload returns what the audit log says of a Reload. Secrets are redacted.
func describeReload(done Reloaded, before, now *config.Config) sandboxmcp.AuditEntry {
	changed := make(map[string]any, len(done.Changed))
	for _, key := range done.Changed {
		changed[key] = map[string]any{"previous": before.Display(key), "current": now.Display(key)}
	}
	entry := sandboxmcp.AuditEntry{
		Detail:   "changed: " + cmp.Or(strings.Join(done.Changed, ", "), "nothing"),
		Metadata: map[string]any{"changed": changed, "held": done.Held},
	}
	if len(done.Held) > 0 {
		entry.Detail += "; after a new start: " + strings.Join(done.Held, ", ")
	}
	return entry
}

// recordReload records a Reload, which failed with err unless that is nil.
func (e *Engine) recordReload(entry sandboxmcp.AuditEntry, err error) error {
	success := err == nil
	entry.Action, entry.Phase, entry.Success = "settings_reloaded", sandboxmcp.PhaseOutcome, &success
	entry.Namespace, entry.Actor = e.cfg.Namespace, "operator"
	_, err = e.audit.Append(context.WithoutCancel(e.ctx), entry)
	return err
}
