//go:build !linux

package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
)

// watched does nothing: Windows cannot end the reading of a pipe.
func watched(*os.File) error { return nil }

// drain does nothing.
func drain(*os.File, io.Writer) {}

// untraced calls f. These systems have no links into the mounts of other processes.
func untraced(f func() error) error { return caught(f) }

// run starts a job and waits for its end. It has no walls besides its own process group.
func run(_ context.Context, j job, s *streams, stop *stopper) (ended, error) {
	e := ended{walls: []string{}, weak: []string{
		"files: this system has no Landlock, so the program can read, write and execute whatever the server's user can", "limits: time and output only", "network and unix sockets: those of the host",
	}}
	cmd := exec.Command(j.path) //nolint:noctx // stop ends it
	cmd.Args, cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = j.words, j.dir, j.env, s.writers[0], s.writers[1]
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return e, err
	}
	s.started()
	stop.begin(func() { killGroup(cmd) })
	err := cmd.Wait()
	e.why = stop.end()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return e, err
	}
	e.exit = cmd.ProcessState.ExitCode()
	return e, nil
}
