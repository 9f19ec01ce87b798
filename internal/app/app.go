// Package app is the composition root: it reads the settings and builds the parts of the
// program from them. It is the only package that imports both the engine and its front
// ends. It holds the server on stdin and stdout, the background server, and the search
// for running servers. Commands call it and print what it returns.
package app

import (
	"cmp"
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
	Watched        bool              // stderr is a terminal
	Reloads        <-chan os.Signal  // a server reads its settings again at each signal; nil: never

	self    func() string   // set by PrepareAlike
	loaded  *config.Config  // set by Load
	file    string          // path of the file of settings, absolute if possible; set by Load
	byPath  bool            // texts name the program by its path, also if a shell here finds it by its name
	sources engine.Settings // of the settings; set by Load

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
	a.loaded, a.file = cfg, absolute(a.Settings)
	a.sources = engine.Settings{Env: a.Env, File: a.file, Values: map[string]any{}}
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
func (a *App) Paste(text string) string {
	if text == "" {
		return ""
	}
	return a.invocation(a.loaded).Paste(text)
}

// invocation returns how a person calls this program with the state directory and the file of settings
// of cfg, if they are loaded. It searches PATH.
func (a *App) invocation(cfg *config.Config) sandboxmcp.Invocation {
	how := sandboxmcp.Invocation{Program: a.Program}
	if !a.byPath && a.onPath() {
		how.Program = ""
	}
	if cfg == nil {
		return how
	}
	if s := cfg.Source("state_dir"); s == config.FromEnv || s == config.FromDefault && a.Variable("XDG_STATE_HOME") != "" {
		how.StateDir = cfg.StateDir
	}
	how.Config = cmp.Or(a.file, absolute(a.Settings))
	return how
}

// absolute returns a path that holds in every working directory, if possible.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
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
