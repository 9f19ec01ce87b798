package process

import (
	"context"
	"io"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// running is a started process.
type running struct {
	s     *sandbox
	proc  *jail.Proc
	pipes *pipes
}

// Interrupt sends SIGINT to the process and its group, and waits until they have it.
func (r *running) Interrupt(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.proc.SignalGroup(ctx, int(unix.SIGINT))
}

// Signal sends a signal to the process alone.
func (r *running) Signal(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.proc.Signal(n)
}

// Channel returns the server's end of a pair of private streams.
func (r *running) Channel(pair int) io.ReadWriteCloser {
	if c := r.pipes.pair(pair); c != nil {
		return c
	}
	return nil
}

// Wait waits for the process to end.
func (r *running) Wait(ctx context.Context) (backend.Exit, error) {
	select {
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	case <-r.proc.Done():
	}
	e, err := r.proc.Exit()
	if err != nil {
		return backend.Exit{}, err
	}
	r.s.watch.Ended(e)
	switch {
	case e.Killed:
		return backend.Exit{Signal: int(unix.SIGKILL), Lost: true}, nil
	case e.Status.Signaled():
		return backend.Exit{Signal: int(e.Status.Signal())}, nil
	default:
		return backend.Exit{Code: e.Status.ExitStatus()}, nil
	}
}

// Flush passes the bytes that are in the streams now to the writers. A program can hold the lock of a pipe
// while the kernel reads from the program's memory, and no signal ends the server's wait for that lock. So
// the bytes are passed on in a goroutine, which may outlive the call; see backend.Blocking.
func (r *running) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	if backend.MayBlock(ctx) {
		done <- r.pipes.flush()
	} else {
		go func() { done <- r.pipes.flush() }()
	}
	select {
	case err := <-done:
		r.s.b.refused(err)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain waits until the streams are read to their end.
func (r *running) Drain(ctx context.Context) error {
	err := r.pipes.drain(ctx)
	r.s.b.refused(err)
	return err
}
