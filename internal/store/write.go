package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxBatch is how many Updates go into one transaction at most.
const maxBatch = 512

// Op is one step of an [Store.Update]. It may only use tx, must return every
// error that tx gives it, must not wait for anything else, and may be called
// from another goroutine than the one that called Update. ctx carries the
// values of the caller's and never ends.
type Op func(ctx context.Context, tx *sql.Tx) error

// job is an Update on its way.
type job struct {
	ctx   context.Context //nolint:containedctx // the job is the call; it carries the call's context to the writer
	ops   []Op
	since time.Time
	state atomic.Int32
	done  chan error
}

// States of a job. Whoever moves it on from waiting decides what it becomes.
const (
	jobWaiting = iota
	jobTaken
	jobWithdrawn
)

func (j *job) take() bool     { return j.state.CompareAndSwap(jobWaiting, jobTaken) }
func (j *job) withdraw() bool { return j.state.CompareAndSwap(jobWaiting, jobWithdrawn) }

// Update runs ops in order in one transaction and returns after it has been
// committed. All of them hold or none does. Updates that wait at the same time
// share a transaction, yet one that fails undoes only itself and returns the
// error of its Op.
//
// When ctx ends before the Update was taken up, it is not run and the context's
// error is returned; one that was taken up is finished. A database that other
// processes keep locked for longer than the busy timeout, a full disk and the
// like are [sandboxmcp.CodeBackendUnavailable]: nothing was recorded then.
func (s *Store) Update(ctx context.Context, ops ...Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{ctx: context.WithoutCancel(ctx), ops: ops, since: time.Now(), done: make(chan error, 1)}
	if !s.line.join(j) {
		return s.closedError()
	}
	defer s.work.Done()
	for {
		select {
		case err := <-j.done:
			return err
		case s.turn <- struct{}{}: // nobody writes: this goroutine does, for itself and for all who wait
			s.write(ctx)
			<-s.turn
		case <-ctx.Done():
			if j.withdraw() {
				return ctx.Err()
			}
			return <-j.done // it was taken, so the answer comes
		}
	}
}

func (s *Store) closedError() error {
	return &sandboxmcp.Error{
		Code:    sandboxmcp.CodeBackendUnavailable,
		Message: fmt.Sprintf("the state directory %s is closed", s.dir),
		Hint:    "the server is ending; ask again when it has been started anew",
	}
}

// line is where Updates wait, the oldest first.
type line struct {
	work *sync.WaitGroup // has one for each that has joined

	mu     sync.Mutex
	jobs   []*job
	closed bool
}

// join puts a job at the end, unless the line is closed.
func (l *line) join(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Add(1)
	l.jobs = append(l.jobs, j)
	return true
}

// close keeps further jobs out.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// first is the oldest job that waits, and leaves it there; nil: none does.
func (l *line) first() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.jobs) > 0 && l.jobs[0].state.Load() != jobWaiting {
		l.jobs = l.jobs[1:]
	}
	if len(l.jobs) == 0 {
		return nil
	}
	return l.jobs[0]
}

// take takes up to n jobs out that still wait.
func (l *line) take(n int) []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch []*job
	for len(l.jobs) > 0 && len(batch) < n {
		if l.jobs[0].take() {
			batch = append(batch, l.jobs[0])
		}
		l.jobs[0], l.jobs = nil, l.jobs[1:]
	}
	return batch
}

// write takes the database's lock, and then everybody who waits by that time
// into the same transaction. The caller has the turn; when its ctx ends, nothing
// is taken, and somebody else writes.
func (s *Store) write(ctx context.Context) {
	first := s.line.first()
	if first == nil {
		return
	}
	base := context.WithoutCancel(ctx)
	var tx *sql.Tx
	err := retryBusy(ctx, time.Until(first.since.Add(s.busy)), func() (err error) {
		tx, err = s.conn.BeginTx(base, nil)
		return err
	})
	if err != nil {
		if ctx.Err() == nil && first.take() {
			first.done <- s.explain("written", err)
		}
		return
	}
	batch := s.line.take(maxBatch)
	switch len(batch) {
	case 0: // it was withdrawn
		_ = s.undo(tx, nil)
	case 1:
		s.writeOne(tx, batch[0])
	default:
		s.writeMany(base, tx, batch)
	}
	s.tidy(base)
}

// tidyAfter is how many transactions go by until what they wrote is moved from
// the log into the database: about a thousand pages of runs.
const tidyAfter = 64

// tidy has the log moved into the database, beside whoever writes meanwhile: it
// waits for the disk. The caller has the turn.
func (s *Store) tidy(ctx context.Context) {
	s.untidy++
	if s.untidy < tidyAfter || s.path == MemoryPath || !s.tidying.CompareAndSwap(false, true) {
		return
	}
	s.untidy = 0
	s.work.Go(func() {
		defer s.tidying.Store(false)
		if _, err := s.reader.ExecContext(ctx, moveTheLog); err != nil {
			s.log.Debug("move the log into the database", "error", err)
		}
	})
}

func (s *Store) writeOne(tx *sql.Tx, j *job) {
	err := j.run(tx)
	if err == nil {
		if err = tx.Commit(); err != nil {
			j.done <- s.explain("written", err)
			return
		}
		j.done <- nil
		return
	}
	j.done <- s.outcome(s.undo(tx, err))
}

// writeMany gives each job a savepoint. If the transaction itself breaks, it
// breaks for all: each is told, and none of them has left anything.
func (s *Store) writeMany(ctx context.Context, tx *sql.Tx, batch []*job) {
	errs := make([]error, len(batch))
	var broken error
	for i, j := range batch {
		if _, broken = tx.ExecContext(ctx, beginJob); broken != nil {
			break
		}
		if errs[i] = j.run(tx); errs[i] != nil {
			if unusable(errs[i]) {
				broken = errs[i]
				break
			}
			if _, broken = tx.ExecContext(ctx, undoJob); broken != nil {
				break
			}
		}
		if _, broken = tx.ExecContext(ctx, endJob); broken != nil {
			break
		}
	}
	if broken == nil {
		broken = tx.Commit()
	} else {
		broken = s.undo(tx, broken)
	}
	for i, j := range batch {
		switch {
		case broken != nil && errs[i] == nil:
			j.done <- s.explain("written", broken)
		default:
			j.done <- s.outcome(errs[i])
		}
	}
}

// undo rolls back and returns err, which may have done so already.
func (s *Store) undo(tx *sql.Tx, err error) error {
	if rerr := tx.Rollback(); rerr != nil && sqliteCode(rerr) < 0 {
		return errors.Join(err, rerr)
	}
	return err
}

// outcome is what the caller of an Update whose Op returned err gets to see.
func (s *Store) outcome(err error) error {
	if err != nil && unusable(err) {
		return s.explain("written", err)
	}
	return err
}

// run runs the ops. A panic in one must not end the writer, and with it
// everybody else's writes: it becomes an error.
func (j *job) run(tx *sql.Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("write to the database: panic: %v", p)
		}
	}()
	for _, op := range j.ops {
		if err := op(j.ctx, tx); err != nil {
			return err
		}
	}
	return nil
}
