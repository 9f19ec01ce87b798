package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Times of the leases in PostgreSQL.
const (
	// leaseTimeout bounds each question to the server.
	leaseTimeout = 5 * time.Second
	// leaseLook is how often the connection that holds leases is tried.
	leaseLook = 2 * time.Second
	// leaseGrace is how long after a loss of the connection every lease counts as held, from the time at which
	// there is a connection again. After a restart of the server, its other clients have that long to take theirs again.
	leaseGrace = 10 * time.Second
)

// postgresLeases are the leases of a process: advisory locks of one connection. The server
// frees them when the connection ends. If it is lost while the process lives, a goroutine
// takes them again.
type postgresLeases struct {
	open   func() *sql.DB
	within func() (context.Context, context.CancelFunc)
	log    *slog.Logger

	mu   sync.Mutex
	db   *sql.DB
	conn *sql.Conn
	lost time.Time       // when a connection was last lost, or made after a loss
	held map[string]bool // by name: whether this connection has the lock
	stop chan struct{}   // ends the goroutine; nil: it does not run
	work sync.WaitGroup
}

// try takes a lease if it is free, and otherwise fails with ErrLeased. If ctx has ended, it asks
// nothing.
func (l *postgresLeases) try(ctx context.Context, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ours := l.held[name]; ours {
		return ErrLeased
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch free, err := l.ask(ctx, tryLeaseLock, name); {
	case err != nil:
		return err
	case !free:
		return ErrLeased
	}
	if l.held == nil {
		l.held = map[string]bool{}
	}
	l.held[name] = true
	if l.stop == nil {
		l.stop = make(chan struct{})
		stop := l.stop
		l.work.Go(func() { l.keep(stop) }) //nolint:contextcheck // the lease outlives the call that takes it
	}
	return nil
}

// leased reports whether a process holds the lease, or whether that cannot be found out.
func (l *postgresLeases) leased(ctx context.Context, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ours := l.held[name]; ours {
		return true
	}
	free, err := l.ask(ctx, tryLeaseLock, name)
	if err != nil || !free {
		return true
	}
	if _, err = l.ask(ctx, freeLeaseLock, name); err != nil {
		return true
	}
	return !l.lost.IsZero() && time.Since(l.lost) < leaseGrace
}

// release frees a lease.
func (l *postgresLeases) release(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	locked := l.held[name]
	delete(l.held, name)
	if !locked || l.conn == nil { // the connection was lost, and the lock with it
		return nil
	}
	ctx, cancel := l.within()
	defer cancel()
	_, err := l.ask(ctx, freeLeaseLock, name)
	return err
}

// close frees all leases.
func (l *postgresLeases) close() error {
	l.mu.Lock()
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
	}
	l.mu.Unlock()
	l.work.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = nil
	return l.drop()
}

// keep tries the connection now and then, and takes the leases again if it was lost.
func (l *postgresLeases) keep(stop <-chan struct{}) {
	tick := time.NewTicker(leaseLook)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		ctx, cancel := l.within()
		_, err := l.ask(ctx, selectTrue)
		if err != nil {
			err = l.connect(ctx)
		} else {
			err = l.retake(ctx)
		}
		if err != nil {
			l.log.Warn("the connection that holds the leases is lost", "error", err)
		}
		cancel()
		l.mu.Unlock()
	}
}

// ask runs a statement that answers true or false, on the connection that holds the leases.
// After an error of the connection the next call makes a new one. A caller who gives up does not
// end the connection, because all leases of the process would be lost with it.
func (l *postgresLeases) ask(ctx context.Context, statement string, args ...any) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	if err = l.connect(ctx); err != nil {
		return false, err
	}
	if err = l.conn.QueryRowContext(ctx, statement, args...).Scan(&yes); err != nil {
		l.lost = time.Now()
		return false, errors.Join(err, l.drop())
	}
	return yes, nil
}

// connect makes the connection if there is none, and takes the leases that are held.
func (l *postgresLeases) connect(ctx context.Context) (err error) {
	if l.conn != nil {
		return nil
	}
	l.db = l.open()
	if l.conn, err = l.db.Conn(ctx); err != nil {
		l.lost = time.Now()
		return errors.Join(err, l.drop())
	}
	if !l.lost.IsZero() { // the others could not take theirs before
		l.lost = time.Now()
	}
	for name := range l.held {
		l.held[name] = false
	}
	return l.retake(ctx)
}

// retake takes the locks that a lost connection had. The server may still hold one for that connection,
// if it has not noticed the loss: then the next call tries again.
func (l *postgresLeases) retake(ctx context.Context) error {
	for name, locked := range l.held {
		if locked {
			continue
		}
		if err := l.conn.QueryRowContext(ctx, tryLeaseLock, name).Scan(&locked); err != nil {
			l.lost = time.Now()
			return errors.Join(fmt.Errorf("take the lease %s again: %w", name, err), l.drop())
		}
		if l.held[name] = locked; !locked {
			l.log.Warn("a lease cannot be taken again yet", "lease", name)
		}
	}
	return nil
}

// drop closes the connection, which frees its locks.
func (l *postgresLeases) drop() (err error) {
	if l.db == nil {
		return nil
	}
	if l.conn != nil {
		_ = l.conn.Close() // gives it back to the pool, which is closed next
	}
	err = l.db.Close()
	l.db, l.conn = nil, nil
	return err
}
