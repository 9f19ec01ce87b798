package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Settings says where the settings of an engine come from. Values win over Env, that over
// File, and that over the defaults. The settings are those of docs/config.md.
type Settings struct {
	Values map[string]any // by key, such as "max_ram_mb": text, a bool, a number or a list of texts
	Env    []string       // KEY=value, as os.Environ returns it; variables that are no settings are ignored
	File   string         // path of a YAML file; empty: none
}

// load reads the settings.
func (s Settings) load() (*config.Config, error) {
	flags := make(map[string]string, len(s.Values))
	for key, v := range s.Values {
		text, err := textOf(key, v)
		if err != nil {
			return nil, err
		}
		flags[key] = text
	}
	return config.Load(config.Sources{Env: s.Env, File: s.File, Flags: flags})
}

// textOf returns a value as the environment would have it.
func textOf(key string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case []string:
		return strings.Join(v, ","), nil
	case bool, int, int64, float64:
		return fmt.Sprint(v), nil
	case fmt.Stringer:
		return v.String(), nil
	}
	return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value of %s is a %T; it has to be text, a bool, a number or a list of texts", key, v)
}

// Options opens an engine from settings.
type Options struct {
	Settings  Settings
	Namespace sandboxmcp.Namespace // empty: that of the settings

	Env     []string // PATH and the variables that version managers need; nil: this process's environment
	Actor   string
	Version string
	Logger  *slog.Logger
	Warm    []sandboxmcp.Language // see Config
	First   *sandboxmcp.Request   // see Config
	Server  bool                  // see Config
	Notices io.Writer             // see Config

	Invocation sandboxmcp.Invocation // see Config

	// Objects opens the object store that the setting blob_url names; nil: the setting is refused.
	Objects func(url string) (sandboxmcp.Objects, error)

	Backends []backend.Backend // besides those of this module; the engine closes them, also if Open fails
}

// Open opens an engine with the settings of o.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e, err := o.open(ctx)
	if err != nil {
		for _, b := range o.Backends {
			err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
		}
	}
	return e, err
}

func (o Options) open(ctx context.Context) (e *Engine, err error) {
	var launcher *process.Launcher
	if o.First != nil { // before the settings are read, because it takes longer
		launcher = process.StartLauncher()
		defer func() {
			if err != nil {
				launcher.Close()
			}
		}()
	}
	c, err := o.Settings.load()
	if err != nil {
		return nil, err
	}
	env := o.Env
	if env == nil {
		env = config.Environ()
	}
	o.Env = env
	if err = checkWorkspace(c, o.Settings.File, env); err != nil {
		return nil, err
	}
	host := processConfig(c, o.Logger, env)
	host.Eager, host.Launcher = o.Server, launcher
	if c.DefaultBackend != process.Name {
		launcher.Close()
		host.Launcher = nil
	}
	host.FindingsFile = filepath.Join(c.StateDir, "runtimes.json") // remembers which interpreters it found
	cfg := o.configured(c)
	if c.EnableHostAccess {
		cfg.keyFiles = keyFiles(c, env)
		for _, t := range obeyed(c, o.Settings.File, env) {
			cfg.trusted = append(cfg.trusted, t.path)
		}
	}
	if cfg.Objects, err = o.objects(c); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(o.Backends, func(b backend.Backend) bool { return b.Name() == config.Kube }) {
		cfg.Absent = map[string]error{config.Kube: noKube()}
	}
	if err = cfg.Absent[c.DefaultBackend]; err != nil {
		return nil, err
	}
	cfg.Backends = append([]backend.Backend{process.New(host), docker.For(dockerConfig(c, host, env))}, o.Backends...)
	if e, err = New(ctx, cfg); err == nil {
		e.reloads = &reloads{from: o, last: c}
	}
	return e, err
}

// objects opens the object store of the settings. A record in memory needs none.
func (o Options) objects(c *config.Config) (sandboxmcp.Objects, error) {
	if c.BlobURL == "" || c.Audit == "memory" {
		return nil, nil //nolint:nilnil // no object store
	}
	if o.Objects == nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "this program has no object store for blob_url").WithHint("use the program sandboxmcp-kube, or unset blob_url")
	}
	return o.Objects(c.BlobURL)
}

// noKube is the error of a program without the backend kube.
func noKube() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "this program has no backend %s", config.Kube).WithHint("use the program sandboxmcp-kube, which has the same commands")
}

// configured returns the configuration that settings say, without backends.
func (o Options) configured(c *config.Config) Config {
	sqlite, postgres := c.SQLitePath, c.DatabaseURL.Reveal()
	if c.Audit == "memory" {
		sqlite, postgres = ":memory:", ""
	}
	return Config{
		StateDir: c.StateDir, KeysFrom: c.KeysFrom, PeerAddress: c.PeerAddress, Postgres: postgres, SQLitePath: sqlite, Synchronous: c.Synchronous, DefaultBackend: c.DefaultBackend, Most: map[string]sandboxmcp.Limits{docker.Name: c.ContainerLimits()},
		Namespace: cmp.Or(o.Namespace, c.Namespace), Limits: c.Limits(), Ceilings: c.Ceilings(), MinTier: c.IsolationMin, MaxCodeBytes: c.MaxCodeBytes, WorkQuotaMB: c.WorkQuotaMB,
		MaxConcurrent: c.MaxConcurrentJobs, MaxQueued: c.MaxQueued,
		MaxSessions: c.Tools.MaxSessions, SessionTTL: time.Duration(c.Tools.SessionTTLMinutes * float64(time.Minute)),
		Network: c.OpensNetwork(), NetworkBackends: c.NetworkBackends(), Operator: c.AllowedDomains, NoAsking: !c.EgressApprovals, Hold: time.Duration(c.EgressHoldSeconds * float64(time.Second)),
		Private: c.EgressPrivateHosts, Detours: c.Detours(), Resolver: c.EgressTestDNS, Notices: o.Notices, Invocation: o.Invocation,
		Vault: c.Vault, VaultKeyring: c.VaultKey == "keyring", VaultInject: c.VaultInject, VaultEnv: o.Env, AllowSecretArtifacts: c.AllowSecretArtifacts, RedactPII: c.RedactPII,
		Namespaces:          c.KeyNamespaces(),
		Holders:             c.KeyHolders(),
		Strangers:           c.OAuthIssuer != "",
		AuditCheckpointFile: c.AuditCheckpointFile, AuditKeep: time.Duration(c.AuditKeepDays) * 24 * time.Hour,
		KeepFor: time.Duration(c.ArtifactKeepHours * float64(time.Hour)), KeepBytes: int64(c.ArtifactKeepMB) << 20,
		NoWeb: !c.EnableWebAccess, WebAllow: c.WebAllowHosts, SearXNG: c.SearxngURL.Reveal(), SearchEngines: c.SearchEngines,
		HostAccess: c.EnableHostAccess, HostAutoApprove: c.HostAutoApprove, HostAllowed: c.HostAllowedCommands, HostBlocked: c.HostBlockedCommands, HostRoots: c.HostRoots, SettingsFile: o.Settings.File, Workspace: c.WorkspacePath, WorkspaceRW: c.WorkspaceMode == "rw",
		Packages: c.Packages, PackagesAllow: c.PackagesAllow, PackagesDeny: c.PackagesDeny, PackagesMinAge: time.Duration(c.PackagesMinAgeDays) * 24 * time.Hour, ClientEnv: o.Env,
		RejectDangerous: c.RejectDangerous, UncheckedRules: c.ValidationDisabled,
		Actor: o.Actor, Version: o.Version, Logger: o.Logger, Warm: o.Warm, First: o.First, Server: o.Server,
	}
}

// DockerBackend returns the docker backend of the settings, if it is the default; otherwise nil. The
// caller closes it.
func DockerBackend(o Options) (docker.Checker, error) {
	c, err := o.Settings.load()
	if err != nil || c.DefaultBackend != docker.Name {
		return nil, err
	}
	env := o.Env
	if env == nil {
		env = config.Environ()
	}
	return docker.For(dockerConfig(c, processConfig(c, o.Logger, env), env)), nil
}

// ProcessBackend returns the process backend of the settings. It keeps nothing in the state
// directory. The caller closes it.
func ProcessBackend(o Options) (*process.Backend, error) {
	c, err := o.Settings.load()
	if err != nil {
		return nil, err
	}
	return process.New(processConfig(c, o.Logger, o.Env)), nil
}

func processConfig(c *config.Config, logger *slog.Logger, env []string) process.Config {
	return process.Config{
		MinTier: c.IsolationMin, TempDir: config.Lookup(env, "TMPDIR"), UIDs: process.UIDRange{First: int(c.UIDRange.First), Last: int(c.UIDRange.Last)}, NoPool: !c.SandboxPool, Logger: logger,
		Root: c.RootFS, CertFile: config.Lookup(env, "SSL_CERT_FILE"),
		Shown: c.WorkspacePath, Writable: c.WorkspaceMode == "rw",
		SearchPath: config.Lookup(env, "PATH"), ShimEnv: env,
	}
}

// dockerDir holds what containers need of their servers while they start. Only root uses it.
const dockerDir = "/run/sandboxmcp/docker"

// dockerCerts returns the directory of certificates that the clients of Docker use.
func dockerCerts(env []string) string {
	if config.Lookup(env, "DOCKER_TLS_VERIFY") == "" {
		return ""
	}
	if dir := config.Lookup(env, "DOCKER_CERT_PATH"); dir != "" {
		return dir
	}
	return filepath.Join(config.Lookup(env, "HOME"), ".docker")
}

func dockerConfig(c *config.Config, host process.Config, env []string) docker.Config {
	host.Root, host.Launcher = "", nil // the image is the root file system
	return docker.Config{
		Process: host, Runtime: c.DockerRuntime, Image: c.ContainerImage(), Dir: dockerDir, Idle: c.DefaultBackend != docker.Name, Logger: host.Logger,
		Host: cmp.Or(c.DockerHost, config.Lookup(env, "DOCKER_HOST")), Certs: dockerCerts(env),
	}
}

// Default opens an engine with default settings. Of the environment it reads only where
// the state directory is; it reads no files.
func Default(ctx context.Context) (*Engine, error) { return Create(ctx, nil) }

// Create opens an engine with settings given in code, by their keys:
//
//	engine.Create(ctx, map[string]any{"max_ram_mb": 256, "allowed_domains": []string{"api.example.com"}})
//
// The others have their defaults. Of the environment it reads only where the state directory
// is. It fails with invalid_argument if a key is unknown or a value is not legal.
func Create(ctx context.Context, values map[string]any) (*Engine, error) {
	return load(ctx, Settings{Values: values, Env: config.OnlyPlaces(config.Environ())})
}

// FromEnv opens an engine with the settings of the environment (SANDBOXMCP_…).
func FromEnv(ctx context.Context) (*Engine, error) {
	return load(ctx, Settings{Env: config.Environ()})
}

// FromYAML opens an engine with the settings of a file. Settings in the environment win
// over those of the file.
func FromYAML(ctx context.Context, path string) (*Engine, error) {
	return load(ctx, Settings{Env: config.Environ(), File: path})
}

func load(ctx context.Context, s Settings) (*Engine, error) {
	return Open(ctx, Options{Settings: s, Actor: "library"})
}

// fillPlaces sets the state directory and the backend of a Config that has none, as for
// [Default].
func (c *Config) fillPlaces() error {
	if c.StateDir != "" && len(c.Backends) > 0 {
		return nil
	}
	env := config.Environ()
	def, err := config.Load(config.Sources{Env: config.OnlyPlaces(env)})
	if err != nil {
		return err
	}
	if c.StateDir == "" {
		c.StateDir = def.StateDir
	}
	if len(c.Backends) == 0 {
		host := processConfig(def, c.Logger, env)
		host.MinTier = c.MinTier
		host.FindingsFile = filepath.Join(c.StateDir, "runtimes.json")
		c.Backends = []backend.Backend{process.New(host)}
	}
	return nil
}
