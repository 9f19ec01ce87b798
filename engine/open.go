package engine

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Options opens an engine from settings.
type Options struct {
	Config  *config.Config
	Env     []string // PATH and the variables that version managers need; nil: this process's environment
	Actor   string
	Version string
	Logger  *slog.Logger
	Warm    []sandboxmcp.Language // see Config
	Server  bool                  // see Config
	Notices io.Writer             // see Config
}

// Open opens an engine with the settings in o.Config.
func Open(ctx context.Context, o Options) (*Engine, error) {
	c := o.Config
	env := o.Env
	if env == nil {
		env = config.Environ()
	}
	sqlite := c.SQLitePath
	if c.Audit == "memory" {
		sqlite = ":memory:"
	}
	host := processConfig(c, o.Logger, env)
	host.FindingsFile = filepath.Join(c.StateDir, "runtimes.json") // remembers which interpreters it found
	return New(ctx, Config{
		StateDir: c.StateDir, SQLitePath: sqlite, Synchronous: c.Synchronous,
		Backends: []backend.Backend{process.New(host)}, DefaultBackend: c.DefaultBackend,
		Absent:    map[string]error{"docker": sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "the docker backend is not built yet").WithHint("use the process backend")},
		Namespace: c.Namespace, Limits: c.Limits(), Ceilings: c.Ceilings(), MinTier: c.IsolationMin, MaxCodeBytes: c.MaxCodeBytes, WorkQuotaMB: c.WorkQuotaMB,
		MaxConcurrent: c.MaxConcurrentJobs, MaxQueued: c.MaxQueued,
		MaxSessions: c.Tools.MaxSessions, SessionTTL: time.Duration(c.Tools.SessionTTLMinutes * float64(time.Minute)),
		Network: c.EnableNetwork, Operator: c.AllowedDomains, NoAsking: !c.EgressApprovals, Hold: time.Duration(c.EgressHoldSeconds * float64(time.Second)),
		Private: c.EgressPrivateHosts, Detours: c.Detours(), Resolver: c.EgressTestDNS, Notices: o.Notices,
		Vault: c.Vault, VaultKeyring: c.VaultKey == "keyring", VaultInject: c.VaultInject, VaultEnv: env, AllowSecretArtifacts: c.AllowSecretArtifacts, RedactPII: c.RedactPII,
		Namespaces:          c.KeyNamespaces(),
		AuditCheckpointFile: c.AuditCheckpointFile, AuditKeep: time.Duration(c.AuditKeepDays) * 24 * time.Hour,
		KeepFor: time.Duration(c.ArtifactKeepHours * float64(time.Hour)), KeepBytes: int64(c.ArtifactKeepMB) << 20,
		Actor: o.Actor, Version: o.Version, Logger: o.Logger, Warm: o.Warm, Server: o.Server,
	})
}

// ProcessBackend returns the process backend of the settings. It keeps nothing in the state
// directory. The caller closes it.
func ProcessBackend(o Options) *process.Backend {
	return process.New(processConfig(o.Config, o.Logger, o.Env))
}

func processConfig(c *config.Config, logger *slog.Logger, env []string) process.Config {
	return process.Config{
		MinTier: c.IsolationMin, TempDir: config.Lookup(env, "TMPDIR"), UIDs: process.UIDRange{First: int(c.UIDRange.First), Last: int(c.UIDRange.Last)}, NoPool: !c.SandboxPool, Logger: logger,
		CertFile:   config.Lookup(env, "SSL_CERT_FILE"),
		SearchPath: config.Lookup(env, "PATH"), ShimEnv: env,
	}
}

// Default opens an engine with default settings. Of the environment it reads only where
// the state directory is; it reads no files.
func Default(ctx context.Context) (*Engine, error) {
	return load(ctx, config.Sources{Env: config.OnlyPlaces(config.Environ())})
}

// FromEnv opens an engine with the settings of the environment (SANDBOXMCP_…).
func FromEnv(ctx context.Context) (*Engine, error) {
	return load(ctx, config.Sources{Env: config.Environ()})
}

// FromYAML opens an engine with the settings of a file. Settings in the environment win
// over those of the file.
func FromYAML(ctx context.Context, path string) (*Engine, error) {
	return load(ctx, config.Sources{Env: config.Environ(), File: path})
}

func load(ctx context.Context, src config.Sources) (*Engine, error) {
	c, err := config.Load(src)
	if err != nil {
		return nil, err
	}
	return Open(ctx, Options{Config: c, Actor: "library"})
}
