// Package app is the composition root: it reads the settings and builds the parts of the
// program from them. It is the only package that imports both the engine and its front
// ends. It holds the server on stdin and stdout, the background server, and the search
// for running servers. Commands call it and print what it returns.
package app

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// App is the input of one call of the program, and the functions that build its parts.
// [New] sets the functions; tests replace them.
type App struct {
	Env            []string // KEY=value
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Settings       string            // file of settings; empty: no file
	Flags          map[string]string // settings given by flags, by key
	LogFile        bool              // log to the default file if no log file is set
	Program        string            // path of this program; empty: it is called by its name
	Backends       []AddBackend      // of other modules
	Objects        OpenObjects       // of another module; nil: the setting blob_url is refused
	Reloads        <-chan os.Signal  // a server reads its settings again at each signal; nil: never

	how     sandboxmcp.Invocation // set by Load
	sources engine.Settings       // of the settings; set by Load

	Open     func(ctx context.Context, o Options) (Engine, error)
	Diagnose func(ctx context.Context, o Options) []sandboxmcp.Check
	Expired  func(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error
	Spawn    func(ctx context.Context, args, env []string, log *os.File) (pid int, exited <-chan error, err error)
	Exit     func(status int)
	Leave    func() error  // called before a background server begins; may be nil
	Linger   time.Duration // how long an idle background server lives
}

// New returns an App with the functions of the real program. Its Exit ends the process.
func New(env []string, stdin io.Reader, stdout, stderr io.Writer) *App {
	a := &App{
		Env: env, Stdin: stdin, Stdout: stdout, Stderr: stderr,
		Exit: os.Exit, //nolint:forbidigo // for a server that does not end; see stopLimit
		Open: openEngine, Diagnose: diagnose, Spawn: spawn, Leave: leaveDirectory, Linger: lingerFor,
	}
	a.Expired = a.expiredHere
	a.Program = ownPath()
	if !a.onPath() {
		a.how.Program = a.Program
	}
	return a
}

// Variable returns an environment variable, or an empty text.
func (a *App) Variable(name string) string {
	for _, kv := range a.Env {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v
		}
	}
	return ""
}

// Load reads the settings. It warns about variables that look like settings and are none.
func (a *App) Load() (*config.Config, error) {
	cfg, err := config.Load(config.Sources{Env: a.Env, File: a.Settings, Flags: a.Flags})
	if err != nil {
		return nil, err
	}
	a.how = a.invocation(cfg)
	a.sources = engine.Settings{Env: a.Env, File: a.how.Config, Values: map[string]any{}}
	for key, text := range a.Flags {
		a.sources.Values[key] = text
	}
	for _, m := range cfg.Mistyped() {
		if m.Guess != "" {
			a.Say("variable " + m.Name + " is not a setting, did you mean " + m.Guess + "?")
		} else {
			a.Say("variable " + m.Name + " is not a setting (see `sandboxmcp config`)")
		}
	}
	return cfg, nil
}

// Paste returns text with the commands in it in the form that a person can paste.
func (a *App) Paste(text string) string { return a.how.Paste(text) }

// invocation returns how a person calls this program with the state directory and the file of
// settings of cfg.
func (a *App) invocation(cfg *config.Config) sandboxmcp.Invocation {
	how := sandboxmcp.Invocation{Program: a.Program}
	if a.onPath() {
		how.Program = ""
	}
	if s := cfg.Source("state_dir"); s == config.FromEnv || s == config.FromDefault && a.Variable("XDG_STATE_HOME") != "" {
		how.StateDir = cfg.StateDir
	}
	if a.Settings != "" {
		how.Config = a.Settings
		if abs, err := filepath.Abs(a.Settings); err == nil {
			how.Config = abs
		}
	}
	return how
}

// onPath reports whether a shell with this environment finds this program by its name.
func (a *App) onPath() bool {
	own, err := os.Stat(a.Program)
	if err != nil {
		return false
	}
	for _, dir := range filepath.SplitList(a.Variable("PATH")) {
		if st, err := os.Stat(filepath.Join(dir, "sandboxmcp")); err == nil {
			return os.SameFile(st, own)
		}
	}
	return false
}

// ownPath returns the path of this program, or an empty text if it cannot be found.
func ownPath() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil { // it was replaced while it ran
		path = strings.TrimSuffix(path, " (deleted)")
	}
	return path
}
