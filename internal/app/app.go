// Package app is the composition root: it reads the settings and builds the parts of the
// program from them. It is the only package that imports both the engine and its front
// ends. It holds the server on stdin and stdout, the background server, and the search
// for running servers. Commands call it and print what it returns.
package app

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
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

// Load reads the settings.
func (a *App) Load() (*config.Config, error) {
	return config.Load(config.Sources{Env: a.Env, File: a.Settings, Flags: a.Flags})
}
