package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Note is a step of an Update that can be carried out after the caller of [Store.Keep] has its
// answer, and by another process if this one ends before. The step must not be able to fail
// because of what another process has written: it would be tried again for ever.
type Note struct {
	Op   Op
	Kind string // name of the function in [Config] Notes that makes the step again from Data; empty: the step cannot wait
	Data []byte
}

// NoteMakers make the steps of notes that another process has kept, by their kind.
type NoteMakers map[string]func(data []byte) (Op, error)

// Makers joins the makers of several packages.
func Makers(of ...NoteMakers) NoteMakers {
	all := NoteMakers{}
	for _, m := range of {
		maps.Copy(all, m)
	}
	return all
}

const (
	// notesWait is how long a note waits for others, with which it shares a transaction. An
	// Update, a [Store.Settle] and Close do not wait.
	notesWait = 50 * time.Millisecond
	// notesAtOnce is the number of waiting notes that do not wait longer.
	notesAtOnce = 64
	// notesMost and notesMostBytes bound the waiting notes. Beyond that, Keep is an Update. If the
	// process is killed then, so many audit entries have no checkpoint; see package audit.
	notesMost      = 512
	notesMostBytes = 4 << 20
	// notesFile is the size in bytes from which a file is replaced by a new one.
	notesFile = 1 << 20
)

// notes is a file to which this process appends steps before they are in the database.
//
// The order is: the file has the note, Keep returns, a transaction carries the note out and
// stores how many bytes of the file are done. So each note is carried out once, by this process or
// by another one. This process does it from memory. If it was killed, another one reads the file.
type notes struct {
	dir    string     // directory of the files of all processes; empty: there are none
	direct bool       // this process makes no file: Keep is Update
	makers NoteMakers // nil: the notes of other processes are left alone
	key    notesKey   // nil: this process has none

	mu      sync.Mutex
	file    *Lease // nil: none was made yet
	name    string
	size    int64 // bytes of the file that hold notes
	waiting []waitingNotes
	steps   int         // of waiting
	bytes   int64       // of waiting
	stuck   bool        // the last transaction did not carry them out
	since   time.Time   // when a transaction first did not, although the database works; zero: it did
	due     *time.Timer // flushes; nil: none is scheduled
}

// waitingNotes are the notes of one Keep.
type waitingNotes struct {
	ctx context.Context //nolint:containedctx // of the call, which has returned; the steps get its values
	ops []Op
	end int64 // bytes of the file up to here
	len int64
}

// Keep records notes, either all or none, and returns once a killed process would not lose
// them. It is Update for notes whose result the caller does not need. The database has them soon; a
// later Update and a [Store.Settle] of this process see them in any case. If the disk is full
// or the notes before are stuck, the error is that of Update and nothing was kept.
//
// With [SynchronousFull], for a database in memory and in PostgreSQL, Keep is Update.
func (s *Store) Keep(ctx context.Context, all ...Note) error {
	if err := ctx.Err(); err != nil || len(all) == 0 {
		return err
	}
	ops := make([]Op, len(all))
	for i := range all {
		ops[i] = all[i].Op
	}
	if n := &s.notes; !n.direct {
		if !s.line.enter() {
			return s.closedError()
		}
		defer s.work.Done()
		if taken, err := n.take(ctx, s, all, ops); taken || err != nil {
			return err
		}
	}
	return s.Update(ctx, ops...)
}

// take appends notes to the file and schedules the transaction that carries them out. It takes
// none if too many wait or these are too large.
func (n *notes) take(ctx context.Context, s *Store, all []Note, ops []Op) (taken bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stuck || n.steps+len(ops) > notesMost || n.bytes >= notesMostBytes {
		return false, nil
	}
	frame, fits, err := n.append(all)
	if err != nil {
		return false, s.explain("written", err)
	}
	if !fits {
		return false, nil
	}
	n.waiting = append(n.waiting, waitingNotes{context.WithoutCancel(ctx), ops, n.size, frame})
	n.steps += len(ops)
	n.bytes += frame
	if n.due == nil {
		s.scheduleFlush(notesWait) //nolint:contextcheck // it outlives the call
	} else if len(n.waiting) == notesAtOnce {
		s.work.Go(s.flush)
	}
	return true, nil
}

// scheduleFlush schedules a flush. The caller holds the lock of the notes and has s.work.
func (s *Store) scheduleFlush(after time.Duration) {
	s.work.Add(1)
	s.notes.due = time.AfterFunc(after, func() {
		defer s.work.Done()
		s.flush()
	})
}

// cancelFlush cancels the scheduled flush, if there is one.
func (s *Store) cancelFlush() {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	if s.notes.due != nil && s.notes.due.Stop() {
		s.work.Done()
	}
	s.notes.due = nil
}

// has reports whether notes wait.
func (n *notes) has() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.waiting) > 0
}

// flush carries out the notes that wait, and tries again later if that fails.
func (s *Store) flush() {
	s.cancelFlush()
	err := s.bringIn(context.Background()) //nolint:forbidigo // the calls that have kept the notes have returned
	if err == nil || s.line.ended() {      // Close carries them out
		return
	}
	n := &s.notes
	level := slog.LevelWarn
	if !s.Stuck().IsZero() {
		level = slog.LevelError
	}
	s.log.Log(context.Background(), level, "the newest records are in their file and not in the database; trying again", "error", err) //nolint:forbidigo // as above
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.due == nil && !s.line.ended() {
		s.scheduleFlush(s.busy)
	}
}

// Flush returns once the database has the notes that this process has kept before. Without notes it
// does nothing.
func (s *Store) Flush(ctx context.Context) error { return s.bringIn(ctx) }

// bringIn carries out the notes that wait. Every Update does so first.
func (s *Store) bringIn(ctx context.Context) error {
	if !s.notes.has() {
		return nil
	}
	return s.Update(ctx)
}

// carryOut carries out the notes that wait, at the beginning of a transaction. It returns how
// many there were, for [notes.finish] after the transaction. On an error the transaction is undone.
// The notes then wait on, and so does their file: what was acknowledged is not dropped.
func (s *Store) carryOut(ctx context.Context, tx *sql.Tx) (count int, err error) {
	n := &s.notes
	n.mu.Lock()
	all, name := slices.Clip(n.waiting), n.name
	n.mu.Unlock()
	if len(all) == 0 {
		return 0, nil
	}
	if err = n.run(ctx, tx, all, name); err != nil {
		return 0, s.undo(tx, n.explain(name, err))
	}
	return len(all), nil
}

func (n *notes) run(ctx context.Context, tx *sql.Tx, all []waitingNotes, name string) error {
	applied, known, err := n.applied(ctx, tx, name, all[len(all)-1].end)
	if err == nil && !known {
		err = n.dropRows(ctx, tx)
	}
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.end <= applied { // another process was faster
			continue
		}
		j := job{ctx: w.ctx, ops: w.ops}
		if err = j.run(tx); err != nil {
			return err
		}
	}
	return n.setApplied(ctx, tx, name, max(applied, all[len(all)-1].end))
}

// dropRows deletes the rows of files that were removed. Their names are not used again.
func (n *notes) dropRows(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, selectNoted)
	if err != nil {
		return err
	}
	defer rows.Close()
	var gone []string
	for rows.Next() {
		var name string
		if err = rows.Scan(&name); err != nil {
			return err
		}
		if _, err = os.Lstat(filepath.Join(n.dir, name)); errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, name)
		}
	}
	err = errors.Join(rows.Err(), rows.Close())
	for _, name := range gone {
		if err == nil {
			_, err = tx.ExecContext(ctx, deleteApplied, name)
		}
	}
	return err
}

// stuckError means that notes cannot be carried out although the database works.
type stuckError struct {
	file string
	error
}

func (e *stuckError) Unwrap() error { return e.error }

// explain adds the file to an error of a step.
func (n *notes) explain(name string, err error) error {
	if err == nil || unusable(err) {
		return err
	}
	return &stuckError{filepath.Join(n.dir, name), err}
}

// finish forgets the first count waiting notes, which are committed, and removes a large file
// once all of its notes are.
func (n *notes) finish(count int) {
	if count == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.waiting[:count] {
		n.steps -= len(w.ops)
		n.bytes -= w.len
	}
	n.waiting = append(n.waiting[:0], n.waiting[count:]...)
	clear(n.waiting[len(n.waiting):cap(n.waiting)])
	n.stuck, n.since = false, time.Time{}
	if len(n.waiting) == 0 && n.size > notesFile {
		_ = n.discard() // a file that stays is read by another process, which finds it done
	}
}

// fail makes every Keep an Update, which reports the reason, until the notes that wait are
// carried out.
func (n *notes) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stuck = len(n.waiting) > 0
	if errors.As(err, new(*stuckError)) && n.since.IsZero() {
		n.since = time.Now()
	}
}

// closeNotes carries out what waits and removes the file. The line is closed and empty.
func (s *Store) closeNotes() (err error) {
	if s.notes.has() {
		j := newJob(context.Background()) //nolint:forbidigo // no caller is left
		s.line.jobs = append(s.line.jobs, j)
		s.write(j.ctx)
		err = <-j.done
	}
	n := &s.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return err
	}
	if err != nil { // the next process reads the file
		return errors.Join(err, n.file.Release())
	}
	return n.discard()
}
