// Package app is the composition root: it reads the settings, makes the parts of the
// program from them and joins them. It is the only room that knows both the engine and the
// doors. It holds the server on stdin and stdout, the server in the background and the way
// to the servers that run. Its callers are commands, which say how to show what it returns.
package app

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// App is what one call of the program was given, and how it makes its parts of that.
// [New] fills in the ways; tests put others in their place.
type App struct {
	Env            []string // KEY=value
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Settings       string            // file of settings; empty: none
	Flags          map[string]string // settings that flags stand for, by their keys
	LogFile        bool              // the log goes to the default file where nobody named one

	Open     func(ctx context.Context, o Options) (Engine, error)
	Diagnose func(ctx context.Context, o Options) []sandboxmcp.Check
	Expired  func(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error
	Spawn    func(ctx context.Context, args, env []string, log *os.File) (pid int, exited <-chan error, err error)
	Exit     func(status int)
	Leave    func() error  // before a server in the background begins; nil: nothing
	Linger   time.Duration // how long one stays without anything to keep
}

// New returns an App with the ways of the program. Exit ends the process.
func New(env []string, stdin io.Reader, stdout, stderr io.Writer) *App {
	a := &App{
		Env: env, Stdin: stdin, Stdout: stdout, Stderr: stderr,
		Exit: os.Exit, //nolint:forbidigo // for a server that does not end; see stopLimit
		Open: openEngine, Diagnose: engine.Doctor, Spawn: spawn, Leave: leaveDirectory, Linger: lingerFor,
	}
	a.Expired = a.expiredHere
	return a
}

// Variable reads an environment variable; empty when it is not there.
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
