package app

import (
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Launch is the command line with which another program starts a server.
type Launch struct {
	Command string
	Args    []string
	Env     map[string]string
}

// Launch returns how another program starts a server with the state directory and the file of
// settings of cfg. The path is absolute, because that program may have another PATH.
func (a *App) Launch(cfg *config.Config) Launch {
	how := a.invocation(cfg)
	l := Launch{Command: a.lastingPath(), Args: []string{"serve"}}
	if how.Config != "" {
		l.Args = append(l.Args, "--config", how.Config)
	}
	if how.StateDir != "" {
		l.Env = map[string]string{"SANDBOXMCP_STATE_DIR": how.StateDir}
	}
	return l
}

// lastingPath returns the path of this program on the PATH, which stays when an update replaces
// the program that a link there names. If it is not on the PATH, that of this program.
func (a *App) lastingPath() string {
	own, err := os.Stat(a.Program)
	if err != nil {
		return a.Program
	}
	for _, dir := range filepath.SplitList(a.Variable("PATH")) {
		path := filepath.Join(dir, filepath.Base(a.Program))
		if st, err := os.Stat(path); err == nil && filepath.IsAbs(path) && os.SameFile(st, own) {
			return path
		}
	}
	return a.Program
}
