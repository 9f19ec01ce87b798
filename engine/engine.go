// Package engine runs untrusted code. It is the one path of an execution, and the package
// that a Go program embeds. MCP, the command line and Go callers all use
// [Engine.Execute]. The steps of a request stand in their order in run.go.
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
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/stats"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
	"github.com/sandboxmcp/sandboxmcp/internal/web"
)

// Config configures an engine. The zero value of a field means its default.
type Config struct {
	StateDir    string             // directory of records, files and the signing key; empty: the default of the settings
	KeysFrom    string             // directory with signing.key and vault.key for a StateDir that has none; empty: they are made
	SQLitePath  string             // the database file; empty: in StateDir; ":memory:" keeps nothing after Close
	PeerAddress string             // host and port where the other servers of the Postgres database reach this one, so that all of them have one set of sessions; empty: they do not
	Postgres    string             // connection URL of a PostgreSQL database; empty: SQLite
	Objects     sandboxmcp.Objects // keeps files and large outputs; it needs Postgres. nil: StateDir
	Synchronous string             // "normal" (default) or "full"

	AuditCheckpointFile string        // second file that audit checkpoints are written to; empty: none
	AuditKeep           time.Duration // age at which audit entries are dropped; 0: never

	Backends       []backend.Backend // the engine closes them; empty: that of this host's kernel, with the interpreters on the PATH
	DefaultBackend string            // empty: the first of Backends
	Absent         map[string]error  // known backends that cannot be used, each with the error for requests that name it

	Most map[string]sandboxmcp.Limits // of backends, by name: ceilings of their sandboxes, below Ceilings; 0: none

	Namespace    sandboxmcp.Namespace // empty: default
	Limits       sandboxmcp.Limits    // used where a request sets none; zero fields: DefaultLimits
	Ceilings     sandboxmcp.Limits    // zero fields: DefaultCeilings
	MinTier      sandboxmcp.Tier      // a run with weaker isolation is refused; empty: L2
	MaxCodeBytes int64                // 0: 1 MiB
	WorkQuotaMB  int                  // size of /mnt/data, at most half of a run's memory; 0: 512

	MaxConcurrent int // concurrent runs; 0: 4
	MaxQueued     int // waiting requests per namespace; 0: 1024

	MaxSessions int           // live sessions; 0: 10
	SessionTTL  time.Duration // idle time after which a session expires; 0: 30 minutes

	Vault                string                          // "sealed" (default), "memory" or "env"
	VaultKeyring         bool                            // the key of a sealed vault is kept in the desktop's keyring
	VaultInject          string                          // which secrets a program gets: "all" (default), "named" or "none"
	VaultEnv             []string                        // KEY=value: the secrets of an "env" vault, and the desktop session that the keyring needs
	AllowSecretArtifacts bool                            // hand out files that contain a secret
	RedactPII            bool                            // mask personal data too
	Namespaces           []sandboxmcp.Namespace          // namespaces in use besides Namespace
	Holders              map[sandboxmcp.Namespace]string // the caller that alone may use a namespace, if it has several
	Strangers            bool                            // callers may use further namespaces, such as those of tokens: a place is kept for them

	KeepFor   time.Duration // age at which records and files of runs are dropped; 0: 24 h
	KeepBytes int64         // size of all stored runs of one namespace; 0: 1 GiB

	FreeSpace func(dir string) (free, total uint64, err error) // free space of a file system; nil: ask the kernel

	Warm  []sandboxmcp.Language // languages for which the default backend is prepared while the engine opens
	First *sandboxmcp.Request   // request that will probably be the first one: its sandbox and interpreter are started while the engine opens

	Network         bool                                 // open Operator, and count refused names even if no domain is open
	Operator        []sandboxmcp.Domain                  // domains open to every run if Network is set
	NetworkBackends []string                             // Network is for the runs of these backends; nil: of all
	NoAsking        bool                                 // turn approvals off: persons are not asked and cannot open domains
	Hold            time.Duration                        // how long a connection to a domain that is not open waits for a person; 0: it is refused at once
	Private         []sandboxmcp.Domain                  // domains that may have a private address; they must be opened like any other
	Detours         map[sandboxmcp.Domain]netip.AddrPort // for tests: addresses used in place of those of a name; reported in isolation.weak
	Resolver        netip.AddrPort                       // for tests: the resolver of all other names; reported in isolation.weak
	Invocation      sandboxmcp.Invocation                // how persons call the program sandboxmcp, for commands in notes and notices

	Notices io.Writer // gets a bell and a line for each new approval; nil: they are logged

	NoWeb         bool     // the web tools are off
	WebAllow      []string // host:port pairs that the web tools may reach although their address is private
	SearXNG       string   // URL of the SearXNG that is asked first; empty: none
	SearchEngines []string // search engines, in the order in which they are asked; nil: all

	HostAccess      bool          // the host tools are on
	HostAutoApprove bool          // host commands need no approval
	HostAllowed     []string      // commands of the host that need no approval
	HostBlocked     []string      // commands of the host that are always refused
	HostRoots       []string      // directories of the host file tools
	trusted         []string      // files and directories that the server executes, obeys or trusts, which the host file tools do not write
	keyFiles        []string      // files with keys outside of the state directory, which host tools and commands may not read
	SettingsFile    string        // the file of the settings, which host tools and commands may not read; empty: none
	Workspace       string        // directory of the host that sandboxes see at /workspace; empty: none
	WorkspaceRW     bool          // programs can change Workspace, so nothing in it is obeyed: no configuration of pip and npm, no browser
	Packages        string        // what becomes of packages in no list: "allow" (default), "ask" or "deny"
	PackagesAllow   []string      // packages that need no question; if Packages is "allow", no others are installed
	PackagesDeny    []string      // packages that are never installed
	PackagesMinAge  time.Duration // releases that are younger are not installed
	ClientEnv       []string      // KEY=value: the settings of the machine's pip and npm

	RejectDangerous bool     // code with a dangerous pattern is not run
	UncheckedRules  []string // dangerous patterns that are not looked for, by the rule of their issues

	Server  bool   // record the start and the stop in the audit log
	Actor   string // actor of requests that name none, for the audit log; empty: library
	Version string // product version for receipts; empty: dev
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
	def(&c.VaultInject, guard.InjectAll)
	if c.WorkQuotaMB == 0 {
		c.WorkQuotaMB = 512
	}
	if c.MaxConcurrent == 0 {
		c.MaxConcurrent = 4
	}
	if c.MaxQueued == 0 {
		c.MaxQueued = 1024
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
	cfg          Config
	log          *slog.Logger
	backends     map[string]backend.Backend
	queue        *queue.Queue
	store        *store.Store
	key          *sign.Key
	audit        *audit.Log
	keeper       *artifact.Keeper
	sessions     *session.Table
	copies       *session.Copies // of large files of sessions
	bridged      session.Values  // for sessions that are created later
	interps      *interpreter.Finder
	vault        *vault.Vault
	web          *web.Client
	packages     *packages.Packages
	kept         *installed.Table // packages of namespaces
	asks         *gate.Gate[gate.Package]
	record       *audit.Reader // of what several parts need from the record
	endings      *gate.Endings
	trees        sync.Map     // their trees, by digest
	parses       *queue.Queue // of programs that are parsed in this process
	fetches      *queue.Queue // of requests of the web tools
	commands     *queue.Queue // of commands of the host
	hostFiles    *queue.Queue // of acts on files of the host
	installs     *queue.Queue // of installations
	cellInstalls *queue.Queue // of those that a cell waits for
	recalls      *queue.Queue // of installations of packages that are known
	named        named        // the trees whose packages the record has named lately
	scans        *queue.Queue // of reads of the whole record
	outputs      *queue.Queue // of copies of the output so far of a run
	loads        *queue.Queue // of results that have ended
	guard        *guard.Guard
	counts       stats.Counts
	limits       *limits.Policy
	egress       *gateway.Egress
	host         *host.Host
	events       *event.Bus
	pressure     event.Rate             // of queue events
	reloads      *reloads               // nil: the engine was not opened from settings
	inForce      atomic.Pointer[Config] // cfg, with what Reload has replaced

	ctx    context.Context //nolint:containedctx // parent of background runs; Close cancels it
	cancel context.CancelFunc
	work   sync.WaitGroup // everything that Close waits for

	expected chan struct{} // closed when the backend was told of Config.First; nil: Config.First is nil

	mu     sync.Mutex // guards the fields below
	live   map[sandboxmcp.RequestID]*execution
	ended  []*execution // background runs that failed before a result was stored
	jobs   []*job       // background runs, oldest first; see [Engine.Jobs]
	seq    uint64
	closed bool
}

// New opens an engine. The zero Config opens one with default settings, like [Default]. New
// fails with an *[sandboxmcp.Error] if the state directory cannot be used. It does not try
// the backends: the first run does.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if err := cfg.fillPlaces(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	e := &Engine{
		cfg: cfg, log: cfg.Logger, backends: map[string]backend.Backend{},
		events: event.New(cfg.Now),
		live:   map[sandboxmcp.RequestID]*execution{},
		parses: newTurns(maxParses), fetches: newTurns(maxFetches), commands: newTurns(maxCommands), hostFiles: newTurns(maxFiles),
		installs: newTurns(maxInstalls), cellInstalls: newTurns(maxInstalls), scans: newTurns(maxScans), outputs: queue.New(queue.Config{MaxConcurrent: maxOutputs, MaxWaiting: maxAsking}),
		loads: queue.New(queue.Config{MaxConcurrent: maxLoads, MaxWaiting: maxAsking}), recalls: queue.New(queue.Config{MaxConcurrent: maxRecalls, MaxWaiting: maxAsking}),
	}
	e.inForce.Store(&cfg)
	for _, b := range cfg.Backends {
		e.backends[b.Name()] = b
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	//nolint:contextcheck // work in the background lives as long as the engine
	e.interps = interpreter.New(e.ctx, interpreter.Config{StateDir: cfg.StateDir, MinTier: cfg.MinTier, Logger: cfg.Logger})
	e.warm(ctx, func() { e.queue = queue.New(queueConfig(cfg)) })
	e.setKnown(&cfg)
	e.work.Go(sign.Prepare) // while the store is opened
	err := e.openRecords(ctx)
	if err == nil && cfg.Server {
		if err = errors.Join(e.join(ctx), e.recordServer(ctx, "server_start")); err != nil {
			e.audit.Close(context.WithoutCancel(ctx))
			err = errors.Join(err, e.store.Close())
		}
	}
	if err != nil {
		e.cancel()
		e.work.Wait()
		e.interps.Wait()
		for _, b := range cfg.Backends {
			err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
		}
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.work.Go(e.sweepLoop)
	e.work.Go(e.followLoop)
	if cfg.First != nil {
		e.work.Go(e.rehearse)
	}
	return e, nil
}

// settings returns the configuration in force, which Reload may have changed since the engine was
// opened.
func (e *Engine) settings() *Config { return e.inForce.Load() }

// maxWaitingBytes bounds the memory of the waiting requests of one namespace. A few hundred
// programs of the usual size have a few MiB.
const maxWaitingBytes = 64 << 20

// queueConfig takes the queue's bounds from the settings, and the bound on kernel tasks
// from the backend that allows the fewest.
func queueConfig(cfg Config) queue.Config {
	q := queue.Config{MaxConcurrent: cfg.MaxConcurrent, MaxWaiting: cfg.MaxQueued, MaxBytes: maxWaitingBytes}
	for _, b := range cfg.Backends {
		if t, ok := b.(backend.Tasker); ok && (q.MaxTasks == 0 || t.MaxTasks() < q.MaxTasks) {
			q.MaxTasks = t.MaxTasks()
		}
	}
	return q
}

// openRecords opens the store and every part that keeps its data there.
func (e *Engine) openRecords(ctx context.Context) error {
	cfg := e.cfg
	var err error
	signer := func() (audit.Signer, error) { return e.key, nil }
	e.store, err = store.Open(ctx, store.Config{
		Dir: cfg.StateDir, Postgres: cfg.Postgres, Objects: cfg.Objects, SQLitePath: cfg.SQLitePath, Synchronous: cfg.Synchronous,
		Notes: store.Makers(audit.Notes(signer), artifact.Notes()), NotesKey: audit.NotesKey(signer), Logger: cfg.Logger, Free: cfg.FreeSpace, Now: cfg.Now,
	})
	if err != nil {
		return err
	}
	if err = adoptKeys(cfg.KeysFrom, e.store.Dir()); err == nil {
		e.key, err = sign.Open(e.store.Dir())
	}
	if err != nil {
		return errors.Join(err, e.store.Close())
	}
	if err = e.store.Recover(ctx); err != nil { // the engine opens nevertheless; each reading of the records fails with this error
		e.log.Error("bring the records of a killed server into the database", "error", err)
	}
	if e.audit, err = e.openAudit(); err != nil {
		return errors.Join(err, e.store.Close())
	}
	e.openLimits()
	e.openWeb()
	e.record = e.audit.Reader()
	e.endings = gate.NewEndings(e.record)
	e.openPackages()
	e.openEgress()
	err = e.openHost()
	if err == nil {
		err = e.openVault(ctx)
	}
	if err != nil {
		e.audit.Close(context.WithoutCancel(ctx))
		return errors.Join(err, e.store.Close())
	}
	//nolint:contextcheck // sessions live as long as the engine
	e.sessions = session.New(e.ctx, session.Config{Store: e.store, Address: cfg.PeerAddress, Max: cfg.MaxSessions, Known: cfg.known(), Holders: cfg.Holders, Now: cfg.Now, Expired: e.expired})
	e.copies = session.NewCopies(e.copiesConfig())
	e.keeper = artifact.NewKeeper(e.store, artifact.Config{
		MaxAge: cfg.KeepFor, MaxBytes: cfg.KeepBytes, Now: cfg.Now,
		Verify: func(r sandboxmcp.Receipt) (sandboxmcp.ReceiptPredicate, error) { return sign.Verify(r, e.key.Public()) },
	})
	return nil
}

// Namespace returns the namespace of requests that name none.
func (e *Engine) Namespace() sandboxmcp.Namespace { return e.cfg.Namespace }

// Close ends every run and session with all their processes, then closes the backends and
// the store. It may be called more than once.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
	e.egress.Wait()
	e.interps.Wait()
	if !first {
		return nil
	}
	had := e.sessions.List("")
	errs := []error{e.sessions.Close(context.WithoutCancel(e.ctx))}
	e.copies.Close()
	for _, s := range had {
		e.events.Emit(event.Session(s, event.GoneStop))
	}
	if e.cfg.Server {
		if err := e.recordServer(context.WithoutCancel(e.ctx), "server_stop"); err != nil {
			e.log.Error("record the stop", "error", err)
		}
	}
	e.events.Close()
	e.sweepIfDue()
	e.audit.Close(context.WithoutCancel(e.ctx)) // after a checkpoint over all entries
	for _, b := range e.backends {
		errs = append(errs, b.Close(context.WithoutCancel(e.ctx)))
	}
	errs = append(errs, e.store.Close())
	e.audit.Publish()
	return errors.Join(errs...)
}
