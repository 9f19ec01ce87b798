package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/stack"
)

// Alike is a server that runs a single run as this process would.
type Alike struct {
	*api.Client
	Digest string
}

// PrepareAlike begins what [App.Alike] and the request after it need and what does not depend on the settings.
// On a processor that has nothing else to do, that saves 0.5 ms.
func (a *App) PrepareAlike() {
	a.self = sync.OnceValue(observeSelf)
	go func() {
		stack.Grow()
		_ = a.self()
		api.PrepareExecute()
	}()
}

// maxHandedOver bounds the bytes of a request that is handed over. Larger ones cost more on the
// way than a server saves.
const maxHandedOver = 1 << 20

// Alike finds a server for a single run: of the same user, program, settings, environment and
// namespaces. With the setting run_server=start it starts one if none runs. It returns nil if
// this process has to run it.
func (a *App) Alike(ctx context.Context, cfg *config.Config, p Place, req sandboxmcp.Request) *Alike {
	switch {
	case cfg.RunServer == "off" || p.Alone:
		return nil
	case cfg.Audit == "memory" || cfg.Vault == VaultMemory: // each process has its own
		return nil
	case cfg.Source("sandbox_log_level") != config.FromDefault || cfg.Source("sandbox_log_file") != config.FromDefault: // its log would be the server's
		return nil
	case req.Hold > 0 || cfg.EgressHoldSeconds > 0 || len(req.Packages) > 0: // a person at this terminal may be asked, or reads progress
		return nil
	case requestBytes(req) > maxHandedOver:
		return nil
	}
	ids, err := api.IDs(cfg.StateDir)
	if cfg.RunServer != "start" && (err != nil || len(ids) == 0) {
		return nil
	}
	self := observeSelf
	if a.self != nil {
		self = a.self
	}
	own := digest(self(), a.Env, cfg)
	if own == "" {
		return nil
	}
	if cfg.RunServer != "start" && len(ids) == 1 { // it compares the digest itself
		return &Alike{api.Sole(cfg.StateDir, ids[0]), own}
	}
	alike := func(h api.Hello) bool { return h.Alike == own }
	look, cancel := context.WithTimeout(ctx, startAnswer)
	defer cancel()
	c := api.First(look, cfg.StateDir, alike)
	if c == nil && cfg.RunServer == "start" && ctx.Err() == nil {
		if c, err = a.startServer(ctx, cfg, alike); err != nil {
			a.Say(sandboxmcp.AsError(err).Message)
			return nil
		}
		if !alike(c.Peer()) {
			return nil
		}
	}
	if c == nil {
		return nil
	}
	return &Alike{c, own}
}

func requestBytes(r sandboxmcp.Request) int {
	n := len(r.Code) + len(r.Stdin)
	for k, v := range r.Env {
		n += len(k) + len(v)
	}
	return n
}

// digest returns a digest of the facts that a run depends on besides its request: the process, its
// environment and the settings in force. It is empty if the process or the settings, which may be
// nil, are not known.
func digest(self string, env []string, cfg *config.Config) string {
	if self == "" || cfg == nil {
		return ""
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s\n%d\n%s", Version(), len(self), self)
	_, _ = sum.Write(cfg.Effective(env))
	return hex.EncodeToString(sum.Sum(nil))
}

// digestOf returns a function that returns the digest of the settings that now returns. It computes it again
// only for other settings, because each single run asks for it.
func digestOf(self string, env []string, now func() *config.Config) func() string {
	var (
		mu    sync.Mutex // guards the variables below
		of    *config.Config
		known string
	)
	return func() string {
		cfg := now()
		mu.Lock()
		defer mu.Unlock()
		if cfg == nil {
			return ""
		}
		if cfg != of {
			of, known = cfg, digest(self, env, cfg)
		}
		return known
	}
}

// statusFields are the lines of /proc/self/status that say what a process may do. Its children
// inherit them.
var statusFields = []string{
	"Umask:", "Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:",
	"Cpus_allowed:", "Mems_allowed:",
}

// namespaces are those of /proc/self/ns that a process is in.
var namespaces = []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"}

// observeSelf describes this process as far as its runs depend on it: its program, user, rights,
// namespaces, root directory and limits. It is empty on a system without /proc.
func observeSelf() string {
	program, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	limits, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return ""
	}
	root, err := os.Stat("/")
	if err != nil {
		return ""
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "program %s %d %s\nroot %s\n", fileID(program), program.Size(), program.ModTime().UTC().Format(time.RFC3339Nano), fileID(root))
	for line := range strings.Lines(string(status)) {
		for _, f := range statusFields {
			if strings.HasPrefix(line, f) {
				b.WriteString(line)
			}
		}
	}
	for _, n := range namespaces {
		link, _ := os.Readlink("/proc/self/ns/" + n) // older kernels do not have all
		b.WriteString(link + "\n")
	}
	label, _ := os.ReadFile("/proc/self/attr/current") // without a security module it cannot be read
	b.Write(label)
	b.Write(limits)
	return b.String()
}
