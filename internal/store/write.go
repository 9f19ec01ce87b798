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

// maxBatch is the largest number of Updates in one transaction.
const maxBatch = 512

// Op is one step of a [Store.Update]. It may only use tx, must return every error of tx and
// must not block on anything else. It may be called from another goroutine than the caller
// of Update. ctx has the values of the caller's context and never ends.
type Op func(ctx context.Context, tx *sql.Tx) error

// job is an Update that has not returned yet.
type job struct {
	ctx   context.Context //nolint:containedctx // the job is the call; it carries the call's context to the writer
	ops   []Op
	since time.Time
	state atomic.Int32
	done  chan error
}

func newJob(ctx context.Context, ops ...Op) *job {
	return &job{ctx: context.WithoutCancel(ctx), ops: ops, since: time.Now(), done: make(chan error, 1)}
}

// States of a job. It begins as waiting, and one goroutine changes its state.
const (
	jobWaiting = iota
	jobTaken
	jobWithdrawn
)

func (j *job) take() bool     { return j.state.CompareAndSwap(jobWaiting, jobTaken) }
func (j *job) withdraw() bool { return j.state.CompareAndSwap(jobWaiting, jobWithdrawn) }

// Update runs ops in order in one transaction and returns once it is committed. Either all
// of them take effect or none. Updates that wait at the same time share a transaction. If
// an Op fails, only its own Update is undone and returns that error.
//
// If ctx ends before the Update has begun, it is not run and the error is that of ctx. Once
// begun, it is finished. If other processes keep the database locked for longer than the
// busy timeout, or the disk is full, the error is [sandboxmcp.CodeBackendUnavailable] and
// nothing was written.
func (s *Store) Update(ctx context.Context, ops ...Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := newJob(ctx, ops...)
	if !s.line.join(j) {
		return s.closedError()
	}
	defer s.work.Done()
	for {
		select {
		case err := <-j.done:
			return err
		case s.turn <- struct{}{}: // no other goroutine writes, so this one writes for all that wait
			s.write(ctx)
			<-s.turn
		case <-ctx.Done():
			if j.withdraw() {
				return ctx.Err()
			}
			return <-j.done // the job was taken, so its result will come
		}
	}
}

func (s *Store) closedError() error {
	return &sandboxmcp.Error{
		Code:    sandboxmcp.CodeBackendUnavailable,
		Message: fmt.Sprintf("the state directory %s is closed", s.dir),
		Hint:    "the server is ending; ask again once it has been restarted",
	}
}

// line is the queue of waiting Updates, oldest first.
type line struct {
	work *sync.WaitGroup // counts the jobs in the line and in progress

	mu     sync.Mutex
	jobs   []*job
	closed bool
}

// join appends a job, unless the line is closed.
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

// enter counts work as in progress, unless the line is closed.
func (l *line) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Add(1)
	return true
}

// ended reports whether the line is closed.
func (l *line) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close refuses further jobs.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// first returns the oldest waiting job, or nil. The job stays in the line.
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

// take removes up to n waiting jobs and returns them.
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

// write takes the database's lock and runs all jobs that are waiting by then in one
// transaction. The caller has the turn. If its ctx ends first, no job is taken, and another
// goroutine writes.
func (s *Store) write(ctx context.Context) {
	first := s.line.first()
	if first == nil {
		return
	}
	base := context.WithoutCancel(ctx)
	tx, err := s.begin(ctx, time.Until(first.since.Add(s.busy)))
	if err != nil {
		if ctx.Err() == nil && first.take() {
			s.notes.fail(err)
			first.done <- s.explain("written", err)
		}
		return
	}
	batch := s.line.take(maxBatch)
	if len(batch) == 0 { // the caller's own job was withdrawn
		_ = s.undo(tx, nil)
		return
	}
	s.writeBatch(base, tx, batch)
	s.tidy(base)
}

// writeBatch carries out the notes that wait and then runs the jobs. Because it looks for notes
// after the jobs were taken, an Update follows all that its caller has kept before.
func (s *Store) writeBatch(ctx context.Context, tx *sql.Tx, batch []*job) {
	notes, err := s.carryOut(ctx, tx)
	s.followers.ran(err == nil)
	committed := false
	switch {
	case err != nil:
		for _, j := range batch {
			j.done <- s.explain("written", err)
		}
	case len(batch) == 1:
		committed = s.writeOne(tx, batch[0])
	default:
		committed = s.writeMany(ctx, tx, batch)
	}
	s.followers.ended(committed)
	if committed {
		s.notes.finish(notes)
	} else {
		s.notes.fail(err)
	}
}

// begin starts a transaction that excludes all other writers. It waits for those of other
// processes for that long.
func (s *Store) begin(ctx context.Context, timeout time.Duration) (tx *sql.Tx, err error) {
	if s.pg != nil {
		return s.pg.begin(ctx, s.writer, timeout)
	}
	base := context.WithoutCancel(ctx)
	err = retryBusy(ctx, timeout, func() (err error) {
		tx, err = s.conn.BeginTx(base, nil)
		return err
	})
	return tx, err
}

// tidyAfter is the number of transactions after which tidy moves the log into the database.
// For runs that is about a thousand pages.
const tidyAfter = 64

// tidy moves the log into the database, in a goroutine because it waits for the disk.
// Writers can continue meanwhile. The caller has the turn.
func (s *Store) tidy(ctx context.Context) {
	s.untidy++
	if s.untidy < tidyAfter || s.path == MemoryPath || s.pg != nil || s.line.ended() || !s.tidying.CompareAndSwap(false, true) {
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

func (s *Store) writeOne(tx *sql.Tx, j *job) (committed bool) {
	err := j.run(tx)
	s.followers.ran(err == nil)
	if err == nil {
		if err = tx.Commit(); err != nil {
			j.done <- s.explain("written", err)
			return false
		}
		j.done <- nil
		return true
	}
	j.done <- s.outcome(s.undo(tx, err))
	return false
}

// writeMany runs each job in a savepoint. If the transaction itself fails, all jobs fail
// and nothing is written.
func (s *Store) writeMany(ctx context.Context, tx *sql.Tx, batch []*job) (committed bool) {
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
		s.followers.ran(errs[i] == nil)
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
	return broken == nil
}

// undo rolls back and returns err. The transaction may have been rolled back before.
func (s *Store) undo(tx *sql.Tx, err error) error {
	if rerr := tx.Rollback(); rerr != nil && sqliteCode(rerr) < 0 && !ofPostgres(rerr) {
		return errors.Join(err, rerr)
	}
	return err
}

// outcome returns the error of an Update for an error of its Op.
func (s *Store) outcome(err error) error {
	if err != nil && unusable(err) {
		return s.explain("written", err)
	}
	return err
}

// run runs the ops. A panic becomes an error, because the writing goroutine runs jobs of
// other callers as well.
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
