package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// inflow is the server's end of a stdin that stays open. Its methods may be called
// concurrently.
type inflow struct {
	w    *os.File
	tty  bool          // the stream is a terminal
	turn chan struct{} // holds a value while a call writes
}

// A terminal's input ends with the character endOfFile. Writing it may block while the input is
// full.
const (
	endOfFile      = 4 // ^D
	endOfFileLimit = 100 * time.Millisecond
)

// newInflow returns an inflow and writes first in a goroutine.
func newInflow(w *os.File, first []byte) *inflow {
	i := &inflow{w: w, turn: make(chan struct{}, 1)}
	if len(first) > 0 {
		i.turn <- struct{}{}
		go func() {
			_, _ = w.Write(first) // a program need not read all of it
			<-i.turn
		}()
	}
	return i
}

// write writes until the pipe has taken all bytes or ctx ends.
func (i *inflow) write(ctx context.Context, p []byte) (n int, err error) {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-i.turn }()
	if err = ctx.Err(); err != nil {
		return 0, err
	}
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = i.w.SetWriteDeadline(time.Unix(1, 0))
		close(late)
	})
	n, err = i.w.Write(p)
	if !stop() { // the deadline is for this write only
		<-late
		_ = i.w.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, fs.ErrClosed):
		return n, fs.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, ctx.Err()
	}
	return n, err
}

// close ends the stream after what was written.
func (i *inflow) close(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-i.turn }()
	if i.tty {
		_ = i.w.SetWriteDeadline(time.Now().Add(endOfFileLimit))
		_, _ = i.w.Write([]byte{endOfFile}) // only once: the descriptor is closed afterwards
	}
	if err := i.w.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// WriteStdin writes to the process's stdin.
func (r *running) WriteStdin(ctx context.Context, p []byte) (n int, err error) {
	if err = ctx.Err(); err != nil {
		return 0, err
	}
	if r.pipes.stdin == nil {
		return 0, fs.ErrClosed
	}
	return r.pipes.stdin.write(ctx, p)
}

// CloseStdin ends the process's stdin.
func (r *running) CloseStdin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.pipes.stdin == nil {
		return nil
	}
	return r.pipes.stdin.close(ctx)
}
