// Package engine runs untrusted code: the one path of an execution, and what a
// Go program embeds. Every door, MCP, command line or library, comes through
// [Engine.Execute]; run.go reads from top to bottom as a request goes.
//
// A minimal program:
//
//	e, err := engine.Default(ctx)
//	if err != nil {
//		return err
//	}
//	defer e.Close()
//	res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print(6*7)"})
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// Config is what an engine is made of. The zero value of a field is its default.
type Config struct {
	StateDir    string // where records, files and the key are kept; required
	SQLitePath  string // the database; empty: in StateDir; ":memory:" keeps no record after Close
	Synchronous string // "normal" (default) or "full"

	AuditCheckpointFile string        // second place of the record's checkpoints; empty: there is none
	AuditKeep           time.Duration // age at which entries of the record are dropped; 0: never

	Backends       []backend.Backend // required; the engine closes them
	DefaultBackend string            // empty: the first of Backends
	Absent         map[string]error  // backends that are known and not there, with what a request for one is answered

	Namespace    sandboxmcp.Namespace // empty: default
	Limits       sandboxmcp.Limits    // in force where a request names none; zero fields: DefaultLimits
	Ceilings     sandboxmcp.Limits    // zero fields: DefaultCeilings
	MinTier      sandboxmcp.Tier      // weaker isolation is refused; empty: L2
	MaxCodeBytes int64                // 0: 1 MiB
	WorkQuotaMB  int                  // of /mnt/data, at most half of a run's memory; 0: 512

	MaxConcurrent int // runs at once; 0: 4
	MaxQueued     int // waiting per namespace; 0: 64

	MaxSessions int           // at once; 0: 10
	SessionTTL  time.Duration // how long a session lives without being used; 0: 30 minutes

	Vault                string                 // "sealed" (default), "memory" or "env"
	VaultKeyring         bool                   // the key of a sealed vault is in the desktop's keyring
	VaultInject          string                 // which secrets a program gets: "all" (default), "named" or "none"
	VaultEnv             []string               // KEY=value: where a vault "env" has its secrets, and the keyring its desktop
	AllowSecretArtifacts bool                   // files that hold a secret are handed out
	RedactPII            bool                   // mask personal data, too
	Namespaces           []sandboxmcp.Namespace // that are in use besides Namespace

	KeepFor   time.Duration // age at which records and files of runs are dropped; 0: 24 h
	KeepBytes int64         // of all that is kept of runs, per namespace; 0: 1 GiB

	FreeSpace func(dir string) (free, total uint64, err error) // of a file system; nil: asks the kernel

	Warm []sandboxmcp.Language // prepare the default backend for these, while the engine opens

	Network  bool                                 // Operator holds, and names that are refused are counted although nothing is open
	Operator []sandboxmcp.Domain                  // what is open to every run, when Network is on
	NoAsking bool                                 // persons are neither asked nor may they open anything
	Hold     time.Duration                        // how long a connection to a name that is not open waits for a person; 0: not at all
	Private  []sandboxmcp.Domain                  // names whose address may be private; they are opened like any other
	Detours  map[sandboxmcp.Domain]netip.AddrPort // for tests: where connections to a name go in place of its address; said in isolation.weak
	Resolver netip.AddrPort                       // for tests: what resolves every other name; likewise
	Notices  io.Writer                            // gets a bell and a line for each question to a person; nil: the log does

	Server  bool   // it serves others: its start and stop are recorded
	Actor   string // who uses the engine, for the audit; empty: library
	Version string // of the product, for receipts; empty: dev
	Logger  *slog.Logger
	Now     func() time.Time // nil: the machine's clock
}

func (c *Config) setDefaults() {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.Actor, "library")
	def(&c.Version, "dev")
	if c.Namespace == "" {
		c.Namespace = sandboxmcp.DefaultNamespace
	}
	if c.MinTier == "" {
		c.MinTier = sandboxmcp.TierL2
	}
	c.Limits = c.Limits.Over(sandboxmcp.DefaultLimits())
	c.Ceilings = c.Ceilings.Over(sandboxmcp.DefaultCeilings(runtime.NumCPU()))
	c.Limits, _ = c.Limits.Clamp(c.Ceilings)
	if c.MaxCodeBytes == 0 {
		c.MaxCodeBytes = 1 << 20
	}
	def(&c.VaultInject, injectAll)
	if c.WorkQuotaMB == 0 {
		c.WorkQuotaMB = 512
	}
	if c.MaxConcurrent == 0 {
		c.MaxConcurrent = 4
	}
	if c.MaxQueued == 0 {
		c.MaxQueued = 64
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 10
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = 30 * time.Minute
	}
	if c.KeepFor == 0 {
		c.KeepFor = 24 * time.Hour
	}
	if c.KeepBytes == 0 {
		c.KeepBytes = 1 << 30
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.DefaultBackend == "" && len(c.Backends) > 0 {
		c.DefaultBackend = c.Backends[0].Name()
	}
}

// Engine runs code. Its methods may be called concurrently.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	backends map[string]backend.Backend
	queue    *queue.Queue
	store    *store.Store
	key      *sign.Key
	audit    *audit.Log
	keeper   *artifact.Keeper
	sessions *session.Table
	sets     *environment.Library
	vault    *vault.Vault
	maskers  maskers
	counts   counts
	limits   *limits.Table
	gate     *gate.Gate
	proxy    *egress.Proxy
	events   *event.Bus
	pressure pressure

	ctx    context.Context //nolint:containedctx // the life of background runs, ended by Close
	cancel context.CancelFunc
	work   sync.WaitGroup // everything that Close waits for

	mu      sync.Mutex
	bridged map[sandboxmcp.Namespace]map[string]json.RawMessage // values for sessions that are made later
	whole   map[string]bool                                     // package sets that were looked at, by digest: every file was what it had to be

	live   map[sandboxmcp.RequestID]*execution
	ended  []*execution // background runs that failed before there was anything to keep
	seq    uint64
	closed bool
}

// New opens an engine. It fails with an *[sandboxmcp.Error] when the state
// directory cannot be used. Backends are not tried before they are needed.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	cfg.setDefaults()
	if len(cfg.Backends) == 0 {
		return nil, errors.New("open engine: no backend")
	}
	e := &Engine{
		cfg: cfg, log: cfg.Logger, backends: map[string]backend.Backend{},
		queue:  queue.New(queueConfig(cfg)),
		events: event.New(cfg.Now),
		live:   map[sandboxmcp.RequestID]*execution{}, bridged: map[sandboxmcp.Namespace]map[string]json.RawMessage{}, whole: map[string]bool{},
	}
	for _, b := range cfg.Backends {
		e.backends[b.Name()] = b
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.sets = environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir), Logger: cfg.Logger})
	e.warm()
	err := e.openRecords(ctx)
	if err == nil && cfg.Server {
		if err = e.recordServer(ctx, "server_start"); err != nil {
			e.audit.Close(context.WithoutCancel(ctx))
			err = errors.Join(err, e.store.Close())
		}
	}
	if err != nil {
		e.cancel()
		e.work.Wait()
		for _, b := range cfg.Backends {
			err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
		}
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.work.Go(e.sweepLoop)
	return e, nil
}

// queueConfig bounds the queue by the settings and by the tasks that the
// backends have for all sandboxes together.
func queueConfig(cfg Config) queue.Config {
	q := queue.Config{MaxConcurrent: cfg.MaxConcurrent, MaxWaiting: cfg.MaxQueued}
	for _, b := range cfg.Backends {
		if t, ok := b.(backend.Tasker); ok && (q.MaxTasks == 0 || t.MaxTasks() < q.MaxTasks) {
			q.MaxTasks = t.MaxTasks()
		}
	}
	return q
}

// warm prepares the default backend beside everything else.
func (e *Engine) warm() {
	w, ok := e.backends[e.cfg.DefaultBackend].(backend.Warmer)
	if !ok || len(e.cfg.Warm) == 0 {
		return
	}
	e.work.Go(func() {
		for _, l := range e.cfg.Warm {
			if i, err := e.interpreter(e.ctx, e.cfg.DefaultBackend, l); err == nil {
				w.Warm(e.ctx, i.Trees)
			}
		}
	})
}

// openRecords opens what is kept.
func (e *Engine) openRecords(ctx context.Context) error {
	cfg := e.cfg
	var err error
	e.store, err = store.Open(ctx, store.Config{Dir: cfg.StateDir, SQLitePath: cfg.SQLitePath, Synchronous: cfg.Synchronous, Logger: cfg.Logger, Free: cfg.FreeSpace, Now: cfg.Now})
	if err != nil {
		return err
	}
	e.key, err = sign.Open(e.store.Dir())
	if err != nil {
		return errors.Join(err, e.store.Close())
	}
	if e.audit, err = e.openAudit(); err != nil {
		return errors.Join(err, e.store.Close())
	}
	e.limits = limits.New(e.store, cfg.Now)
	e.openGate()
	if err = e.openVault(); err != nil {
		e.audit.Close(context.WithoutCancel(ctx))
		return errors.Join(err, e.store.Close())
	}
	//nolint:contextcheck // sessions live as long as the engine
	e.sessions = session.New(e.ctx, session.Config{Store: e.store, Max: cfg.MaxSessions, Now: cfg.Now, Expired: e.expired})
	e.keeper = artifact.NewKeeper(e.store, artifact.Config{MaxAge: cfg.KeepFor, MaxBytes: cfg.KeepBytes, Now: cfg.Now})
	return nil
}

// Namespace is the tenant of a request that names none.
func (e *Engine) Namespace() sandboxmcp.Namespace { return e.cfg.Namespace }

// Close ends every run, foreground and background, and everything in their
// sandboxes, and closes the backends and the store. It may be called more than
// once.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
	if !first {
		return nil
	}
	had := e.sessions.List("")
	errs := []error{e.sessions.Close(context.WithoutCancel(e.ctx))}
	for _, s := range had {
		e.tellSession(s, goneStop)
	}
	if e.cfg.Server {
		if err := e.recordServer(context.WithoutCancel(e.ctx), "server_stop"); err != nil {
			e.log.Error("record the stop", "error", err)
		}
	}
	e.events.Close()
	e.sweepIfDue()
	e.audit.Close(context.WithoutCancel(e.ctx)) // with all that was recorded under a checkpoint
	for _, b := range e.backends {
		errs = append(errs, b.Close(context.WithoutCancel(e.ctx)))
	}
	errs = append(errs, e.store.Close())
	e.audit.Publish()
	return errors.Join(errs...)
}
