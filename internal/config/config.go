// Package config defines every setting in one place: its key in a YAML file, its
// environment variable, its default, its legal values and one line of documentation. A
// flag wins over the environment, that over the YAML file, and that over the default. The
// source of each value is recorded. A value that is not legal stops the program with an
// error that names it; no setting is guessed or silently ignored.
//
// To add a setting, add a field to [Config] and a row to the table in rows.go.
// `make generate` then writes it into docs/config.md.
package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Source says where a value came from.
type Source string

// The sources, strongest first.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "env"
	FromYAML    Source = "yaml"
	FromDefault Source = "default"
)

// Sources is what [Load] reads.
type Sources struct {
	Env   []string          // KEY=value, as os.Environ gives it
	File  string            // path of a YAML file; empty: none
	Flags map[string]string // key to text, of the flags that were given
}

// Config holds every setting, validated. It does not change after [Load] and may be read
// concurrently. Printing it shows no secret.
type Config struct {
	StateDir    string            // absolute
	SQLitePath  string            // empty: the default path in StateDir
	DatabaseURL sandboxmcp.Secret // a PostgreSQL database in place of SQLite; empty: SQLite
	PeerAddress string            // where the other servers of the database reach this one; empty: they do not
	KeysFrom    string            // directory of keys for a state directory without any; empty: they are made
	BlobURL     string            // an object store for files and large outputs; empty: the state directory
	Audit       string            // sqlite or memory
	Synchronous string            // normal or full

	AuditCheckpointFile string // empty: no file; otherwise absolute
	AuditKeepDays       int    // 0: unlimited

	Namespace sandboxmcp.Namespace

	DefaultBackend    string
	Kube              KubeSettings
	RootFS            string // empty: this machine's
	MaxConcurrentJobs int
	MCPAnswers        string // small or full
	MCPOutputChars    int
	MCPTools          []string // tools and groups of tools; empty: all
	MCPReadOnly       bool
	MaxQueued         int // per namespace
	IsolationMin      sandboxmcp.Tier
	UIDRange          UIDRange
	RunServer         string // use, start or off
	SandboxPool       bool   // reuse parts of ended sandboxes, and build sandboxes ahead

	MaxRAMMB       int
	MaxCPUCores    float64
	TimeoutSeconds float64
	MaxProcesses   int
	MaxOutputBytes int64
	MaxCodeBytes   int64
	WorkQuotaMB    int

	CeilingRAMMB          int
	CeilingCPUCores       float64 // 0: as many as the machine has
	CeilingTimeoutSeconds float64
	CeilingProcesses      int
	CeilingOutputBytes    int64

	ArtifactKeepHours float64
	ArtifactKeepMB    int

	EnableNetwork      bool
	AllowedDomains     []sandboxmcp.Domain
	EgressApprovals    bool
	EgressHoldSeconds  float64
	EgressPrivateHosts []sandboxmcp.Domain // no wildcards
	EnableWebAccess    bool
	WebAllowHosts      []string
	SearxngURL         sandboxmcp.Secret // a URL may have a password
	SearchEngines      []string

	EnableHostAccess    bool
	HostAutoApprove     bool
	HostAllowedCommands []string
	HostBlockedCommands []string
	HostRoots           []string

	Vault                string // sealed, memory or env
	VaultKey             string // file or keyring
	VaultInject          string // all, named or none
	AllowSecretArtifacts bool
	RedactPII            bool

	Packages           string // allow, ask or deny
	PackagesMinAgeDays int
	PackagesAllow      []string
	PackagesDeny       []string
	RejectDangerous    bool
	ValidationDisabled []string

	Image         string // empty: the product's own
	DockerHost    string // empty: DOCKER_HOST, or the usual socket
	DockerRuntime string // of containers; empty: runc
	MemoryLimit   Size
	CPUPeriod     int
	CPUQuota      int
	NetworkMode   string
	Hardened      bool
	WorkspacePath string
	WorkspaceMode string

	APIHost        string
	ArtifactServer bool // with stdio, files have links on a loopback port
	APIPort        int
	APIKeys        []APIKey
	CORSOrigins    []string
	PublicURL      string
	OAuthIssuer    string
	OAuthAudience  string
	OAuthKeysURL   string
	OAuthScope     string
	APIRate        int // requests per second of a caller; 0: no limit

	Tools Tools

	Test              bool
	EgressTestResolve []Mapping
	EgressTestDNS     netip.AddrPort // zero: not set

	rows     []row
	sources  map[string]Source
	mistyped []Mistyped
}

// Tools holds the settings of mcp-code-sandbox: for its five tools, sessions, the artifact
// server and the log.
type Tools struct {
	Image                string
	MemoryLimit          Size
	CPULimit             float64
	ExecTimeoutSeconds   float64
	SessionTTLMinutes    float64
	MaxSessions          int
	CleanupMinutes       float64
	MaxUploadBytes       int64
	MaxArtifactReadBytes int64
	MaxOutputBytes       int64
	MaxCodeBytes         int64
	HTTPHost             string
	HTTPPort             int
	LogLevel             string // DEBUG, INFO, WARNING or ERROR
	LogFile              string
	LogFormat            string // console or json
	Stateful             bool
	Network              string // none or approved
}

// Load reads the settings. If a value is not legal, it fails with
// [sandboxmcp.CodeInvalidArgument] and names the variable, the flag, or the file and line,
// and the value and its legal form. The message never contains the value of a secret.
func Load(src Sources) (*Config, error) {
	c, err := defaults()
	if err != nil {
		return nil, err
	}
	if src.File != "" {
		if faults := c.readFile(src.File); len(faults) > 0 {
			return nil, faults[0]
		}
	}
	env := environment(src.Env)
	if err := c.readEnv(env); err != nil {
		return nil, err
	}
	if err := c.readFlags(src.Flags); err != nil {
		return nil, err
	}
	if err := c.settle(env); err != nil {
		return nil, err
	}
	c.findMistyped(src.Env)
	return c, nil
}

// defaults returns the settings without any source.
func defaults() (*Config, error) {
	c := &Config{sources: map[string]Source{}}
	c.rows = table(c)
	for _, r := range c.rows {
		if !r.assign(r.def) {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "the default %q of %s is not legal", r.def, r.key)
		}
	}
	return c, nil
}

// Check reads a file of settings and returns every fault in it. Of env it uses only the
// variables that determine the state directory, so the answer is the same in each shell.
func Check(file string, env []string) []error {
	c, err := defaults()
	if err != nil {
		return []error{err}
	}
	if faults := c.readFile(file); len(faults) > 0 {
		return faults
	}
	if err := c.settle(environment(OnlyPlaces(env))); err != nil {
		return []error{err}
	}
	return nil
}

func (c *Config) readEnv(env map[string]string) error {
	for _, r := range c.rows {
		text := env[r.env]
		if r.env == "" || text == "" {
			continue
		}
		if !r.assign(text) {
			return r.illegal(r.env, text)
		}
		c.sources[r.key] = FromEnv
	}
	return nil
}

func (c *Config) readFlags(flags map[string]string) error {
	known := 0
	for _, r := range c.rows {
		text, ok := flags[r.key]
		if !ok {
			continue
		}
		known++
		if !r.assign(text) {
			return r.illegal(r.key, text)
		}
		c.sources[r.key] = FromFlag
	}
	if known == len(flags) {
		return nil
	}
	byKey := make(map[string]row, len(c.rows))
	for _, r := range c.rows {
		byKey[r.key] = r
	}
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		if _, ok := byKey[key]; ok {
			continue
		}
		msg := "unknown setting " + sandboxmcp.Quote(key)
		if g := guess(key, byKey); g != "" {
			msg += " (did you mean " + g + "?)"
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s", msg).WithHint("`sandboxmcp config` lists every setting")
	}
	return nil
}

// settle computes settings that depend on others, and refuses invalid combinations.
func (c *Config) settle(env map[string]string) error {
	if !c.Test {
		for _, r := range c.rows {
			if r.test && c.Source(r.key) != FromDefault {
				return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is for tests only and needs SANDBOXMCP_TEST=1", r.env).
					WithHint("unset " + r.env)
			}
		}
	}
	dir, err := stateDir(c.StateDir, env)
	if err != nil {
		return err
	}
	c.StateDir = dir
	for _, p := range []*string{&c.SQLitePath, &c.AuditCheckpointFile, &c.WorkspacePath} {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return fmt.Errorf("make path absolute: %w", err)
		}
	}
	if err = c.checkCores(); err != nil {
		return err
	}
	return c.checkCeilings()
}

// checkCores fails if a setting gives a smaller share of a core than can be enforced.
func (c *Config) checkCores() error {
	for _, share := range []struct {
		keys  string
		cores float64
	}{
		{"ceiling_cpu_cores", c.CeilingCPUCores},
		{"cpu_quota / cpu_period", c.ContainerLimits().MaxCPUCores},
	} {
		if err := (sandboxmcp.Limits{MaxCPUCores: share.cores}).Check(); err != nil {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s gives %v CPU cores; it has to be at least 0.01", share.keys, share.cores).
				WithHint("raise " + share.keys)
		}
	}
	return nil
}

// checkCeilings fails if a limit that the operator has set is above its ceiling.
func (c *Config) checkCeilings() error {
	_, over := c.unset().Clamp(c.Ceilings())
	for _, key := range over {
		if c.Source(key) != FromDefault && (key != "max_cpu_cores" || c.CeilingCPUCores != 0) {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is above its ceiling", key).
				WithHint("lower " + key + " or raise its ceiling_… setting")
		}
	}
	return nil
}

// unset returns the configured limits of a request that sets none.
func (c *Config) unset() sandboxmcp.Limits {
	return sandboxmcp.Limits{
		MaxRAMMB: c.MaxRAMMB, MaxCPUCores: c.MaxCPUCores, TimeoutSeconds: c.TimeoutSeconds,
		MaxProcesses: c.MaxProcesses, MaxOutputBytes: c.MaxOutputBytes,
	}
}

// Ceilings returns the largest limits that a caller may ask for.
func (c *Config) Ceilings() sandboxmcp.Limits {
	l := sandboxmcp.Limits{
		MaxRAMMB: c.CeilingRAMMB, MaxCPUCores: c.CeilingCPUCores, TimeoutSeconds: c.CeilingTimeoutSeconds,
		MaxProcesses: c.CeilingProcesses, MaxOutputBytes: c.CeilingOutputBytes,
	}
	cores := sandboxmcp.DefaultCeilings(runtime.NumCPU()).MaxCPUCores
	if l.MaxCPUCores == 0 || l.MaxCPUCores > cores {
		l.MaxCPUCores = cores
	}
	return l
}

// Limits returns the limits of a request that sets none: the configured defaults, each
// lowered to its ceiling.
func (c *Config) Limits() sandboxmcp.Limits {
	l, _ := c.unset().Clamp(c.Ceilings())
	return l
}

// ToolLimits returns the limits of the five tools of mcp-code-sandbox. A limit is 0 if its
// variable is not set; the default of Limits applies then.
func (c *Config) ToolLimits() sandboxmcp.Limits {
	l := sandboxmcp.Limits{}
	if c.Source("sandbox_memory_limit") != FromDefault {
		l.MaxRAMMB = int(c.Tools.MemoryLimit.Bytes >> 20)
	}
	if c.Source("sandbox_cpu_limit") != FromDefault {
		l.MaxCPUCores = c.Tools.CPULimit
	}
	if c.Source("sandbox_exec_timeout_s") != FromDefault {
		l.TimeoutSeconds = c.Tools.ExecTimeoutSeconds
	}
	l.MaxOutputBytes = c.Tools.MaxOutputBytes
	l, _ = l.Clamp(c.Ceilings())
	return l
}

// KubeSettings are the settings of the backend kube.
type KubeSettings struct {
	Config, Context, Namespace string
	Image, Pool, RuntimeClass  string
	SparePods, MostSpares      int
	KeyFile                    string
	HostUsers                  bool
	Connect                    string // auto, pod or api
	Canary                     []string
}

// ContainerLimits returns the ceilings of a container that the settings of Docker make. A limit is 0
// if they are not set.
func (c *Config) ContainerLimits() sandboxmcp.Limits {
	l := sandboxmcp.Limits{}
	if c.Source("memory_limit") != FromDefault {
		l.MaxRAMMB = int(c.MemoryLimit.Bytes >> 20)
	}
	if c.Source("cpu_quota") != FromDefault || c.Source("cpu_period") != FromDefault {
		l.MaxCPUCores = float64(c.CPUQuota) / float64(c.CPUPeriod)
	}
	return l
}

// InContainers reports whether runs are in containers unless they ask for another backend.
func (c *Config) InContainers() bool { return c.DefaultBackend == docker }

// ConfinesTo returns the only backend that callers over MCP and HTTP may choose; empty: they may choose any. An
// operator who runs code in containers or pods does not want it on the server's own machine.
func (c *Config) ConfinesTo() string {
	if c.DefaultBackend == process {
		return ""
	}
	return c.DefaultBackend
}

// NetworkBackends returns the backends to whose runs allowed_domains are open, if OpensNetwork; nil: to
// those of all.
func (c *Config) NetworkBackends() []string {
	if c.EnableNetwork {
		return nil
	}
	return []string{docker}
}

// OpensNetwork reports whether allowed_domains are open to some runs.
func (c *Config) OpensNetwork() bool {
	return c.EnableNetwork || c.InContainers() && !strings.EqualFold(c.NetworkMode, "none")
}

// ContainerImage returns the image of containers; empty: as the engine has it.
func (c *Config) ContainerImage() string {
	if c.Image == "" && c.Source("sandbox_image") != FromDefault {
		return c.Tools.Image
	}
	return c.Image
}

// Port returns the HTTP port, and whether the operator has set it. A port that was set is
// never replaced by another one if it is in use.
func (c *Config) Port() (port int, chosen bool) {
	for _, from := range []Source{FromFlag, FromEnv, FromYAML} {
		if c.Source("api_port") == from {
			return c.APIPort, true
		}
		if c.Source("sandbox_http_port") == from {
			return c.Tools.HTTPPort, true
		}
	}
	return c.APIPort, false
}

// Source returns the source of a setting; [FromDefault] for an unknown key.
func (c *Config) Source(key string) Source {
	if s, ok := c.sources[key]; ok {
		return s
	}
	return FromDefault
}

// Changed returns the keys of the settings whose values differ from those of other: of those
// that can be reloaded, or of all others.
func (c *Config) Changed(other *Config, live bool) []string {
	keys := []string{}
	for i, r := range c.rows {
		if r.live() == live && !reflect.DeepEqual(r.into.whole(), other.rows[i].into.whole()) {
			keys = append(keys, r.key)
		}
	}
	return keys
}

// Reloaded returns the settings of a server that has begun with c and reads next: those that can
// be reloaded are next's, all others c's.
func (c *Config) Reloaded(next *Config) (*Config, error) {
	merged, err := defaults()
	if err != nil {
		return nil, err
	}
	for i, r := range merged.rows {
		from := c
		if r.live() {
			from = next
		}
		reflect.ValueOf(r.into.field).Elem().Set(reflect.ValueOf(from.rows[i].into.field).Elem())
		if s, ok := from.sources[r.key]; ok {
			merged.sources[r.key] = s
		}
	}
	return merged, nil
}

// Display returns the value of a setting with that key as it may be shown, secrets redacted; nil:
// there is none.
func (c *Config) Display(key string) any {
	for _, r := range c.rows {
		if r.key == key {
			return r.into.show()
		}
	}
	return nil
}

// Value is a setting for display.
type Value struct {
	Key    string
	Env    string // empty: no variable
	Value  any    // string, bool, number or []string; a secret is redacted
	Source Source
	Doc    string
}

// Values lists every setting in the order of the documentation, secrets redacted.
func (c *Config) Values() []Value {
	out := make([]Value, 0, len(c.rows))
	for _, r := range c.rows {
		out = append(out, Value{Key: r.key, Env: r.env, Value: r.into.show(), Source: c.Source(r.key), Doc: r.doc})
	}
	return out
}

// Row is the documentation of a setting.
type Row struct {
	Group   string // heading in the documentation
	Key     string // key in a YAML file; empty: only an environment variable
	Env     string // empty: no variable
	Default string // as written in the variable
	Legal   string // legal values, to follow "it has to be"
	Doc     string
	Live    bool // a server reads it again on SIGHUP
	Front   bool // no run depends on it; see [Config.Effective]
}

// Rows lists the documentation of every setting.
func Rows() []Row {
	var out []Row
	for _, r := range table(&Config{}) {
		d := Row{Group: r.group, Key: r.key, Env: r.env, Default: r.def, Legal: r.into.legal(), Doc: r.doc, Live: r.live(), Front: slices.Contains(front, r.key)}
		if r.envOnly() {
			d.Key = ""
		}
		out = append(out, d)
	}
	return out
}

// environment returns the variables by name. Names that begin with SANDBOX_ match in any
// case, as in mcp-code-sandbox; the exact spelling wins.
func environment(env []string) map[string]string {
	out := map[string]string{}
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		upper := strings.ToUpper(name)
		if name != upper && !strings.HasPrefix(upper, "SANDBOX_") {
			continue
		}
		if _, there := out[upper]; !there || name == upper {
			out[upper] = value
		}
	}
	return out
}

func stateDir(set string, env map[string]string) (string, error) {
	if set == "" {
		if home := env["XDG_STATE_HOME"]; filepath.IsAbs(home) {
			return filepath.Join(home, "sandboxmcp"), nil
		}
		home := env["HOME"]
		if !filepath.IsAbs(home) {
			return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "no state directory: HOME is not set").
				WithHint("set SANDBOXMCP_STATE_DIR to a directory")
		}
		return filepath.Join(home, ".local", "state", "sandboxmcp"), nil
	}
	abs, err := filepath.Abs(set)
	if err != nil {
		return "", fmt.Errorf("make state directory absolute: %w", err)
	}
	return abs, nil
}

// readable returns the message of a file system error without its path.
func readable(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "no such file"
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
