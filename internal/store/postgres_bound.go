package store

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// silence bounds how long a statement waits for bytes of the server, on top of the time for which the server may let it
// wait for other writers. A server that is stopped accepts connections and confirms what it is sent, so nothing else
// ends the wait for it.
const silence = 10 * time.Second

// bounded is a connection on which each read is bounded. Its user may set an earlier deadline.
type bounded struct {
	net.Conn
	most time.Duration

	mu       sync.Mutex
	deadline time.Time // that the user has set; zero: none
}

// Read reads what the server sends, for a time that is bounded.
func (b *bounded) Read(p []byte) (int, error) {
	b.mu.Lock()
	end := time.Now().Add(b.most)
	if !b.deadline.IsZero() && b.deadline.Before(end) {
		end = b.deadline
	}
	err := b.Conn.SetReadDeadline(end)
	b.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return b.Conn.Read(p)
}

// SetDeadline sets the user's deadline.
func (b *bounded) SetDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = t
	return b.Conn.SetDeadline(t)
}

// SetReadDeadline sets the user's deadline of reads.
func (b *bounded) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = t
	return b.Conn.SetReadDeadline(t)
}

// failedConnect is how long a failure to connect in time answers other callers. Otherwise each of many callers that wait
// for a connection would wait for the same.
const failedConnect = 2 * time.Second

// failure remembers that the server did not answer a new connection in time.
type failure struct {
	mu    sync.Mutex
	err   error
	until time.Time
}

func (f *failure) last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

// note remembers the error of a connection that was not made in time, and returns the one for callers: it is not the end
// of their own time.
func (f *failure) note(err error) error {
	if e, ok := errors.AsType[net.Error](err); !(ok && e.Timeout()) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.until = silent(), time.Now().Add(failedConnect)
	return f.err
}

func silent() error {
	return &databaseError{reason: "the server does not answer", hint: "see whether it runs, and read its log"}
}

// pingLimit bounds the question by which a connection is tried that was not used for a while.
const pingLimit = 2 * time.Second

// ResetSession tries a connection before it is used again.
func (c *numberedConn) ResetSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	return c.Conn.ResetSession(ctx)
}

// unanswered returns the error of a question that the server did not answer before ctx ended.
func (*postgres) unanswered(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return silent()
	}
	return err
}
