package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Limits of the entries that have no checkpoint yet. An append that would exceed maxTail
// adds a checkpoint in its own transaction. Otherwise a goroutine adds one after tailWait.
const (
	maxTail  = 100                    // entries
	tailWait = 800 * time.Millisecond // time after the first of them

	// alarmTail is the number of entries without a checkpoint that Verify reports as a fault. It is
	// higher than maxTail, because a transaction that is undone also undoes its checkpoint. A killed
	// server can also leave up to 512 entries as notes, which a process without the key carries out.
	alarmTail = 3*maxTail + 512

	hashLength   = 64          // length of a SHA-256 in hex
	sealAtOnce   = 1024        // most entries that one checkpoint adds; only a record without any checkpoint has more
	publishEvery = time.Second // shortest interval between two writes to the files
	keepAgain    = 10 * time.Second
)

// sealer adds checkpoints over new entries. Several processes may do so for one record:
// each reads the newest checkpoint in its transaction and continues from there.
type sealer struct {
	store  *store.Store
	signer Signer
	macs   *macs // used in transactions only
	mark   *mark
	places places
	now    func() time.Time
	log    *slog.Logger

	last   atomic.Int64                  // position of the last entry that this process has appended
	sealed atomic.Int64                  // size of the newest checkpoint that this process knows to be committed
	armed  atomic.Bool                   // the goroutine was told that there are new entries
	broken atomic.Bool                   // the record does not match its checkpoints, and the sealer has stopped
	found  atomic.Pointer[tamperedError] // why broken is set
	keep   *findings                     // keeps found outside the database

	// Used in transactions only, which run one at a time.
	hint     int64  // size of the newest checkpoint; its transaction may have been undone
	known    string // a note whose signature was checked before
	macsFrom int64  // as that note states it

	fault     atomic.Pointer[fault]      // why new entries get no checkpoint; nil: they get one
	unwritten atomic.Pointer[fault]      // the newest checkpoint is not in its files; nil: it is, or is to be written
	schema    atomic.Pointer[fault]      // tables are not as a server makes them; nil: they are, or were not compared
	hidden    atomic.Pointer[fault]      // an entry cannot be read; nil: each can
	compare   repeated                   // the comparison of the tables
	fresh     atomic.Pointer[checkpoint] // the newest checkpoint that is committed
	published int64                      // size of the newest checkpoint that was written to the files

	soon, made chan struct{} // capacity 1; a token means that there is work
	stop       chan struct{}
	work       sync.WaitGroup
}

// repeated is something that is tried again and again. It may fail once, such as while the database restarts.
type repeated struct {
	failing atomic.Bool           // it has failed the last time
	fault   atomic.Pointer[fault] // it has failed the last two times, or more often; nil: it has not
}

// tried notes the error of one time, or that there was none. f is what to tell of a failure.
func (r *repeated) tried(err error, f *fault) {
	again := r.failing.Swap(err != nil)
	switch {
	case err == nil:
		r.fault.Store(nil)
	case again:
		r.fault.CompareAndSwap(nil, f)
	}
}

// newSealer starts a sealer. If a server has kept a finding about the record before, the sealer signs nothing.
func newSealer(ctx context.Context, s *store.Store, c Config, e *ends, keep *findings) *sealer {
	ctx = context.WithoutCancel(ctx)
	l := &sealer{
		store: s, signer: c.Signer, macs: e.macs, mark: e.mark, places: keep.places, keep: keep, now: c.Now, log: c.Logger,
		soon: make(chan struct{}, 1), made: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if err := l.places.foundAnywhere(c.Signer.OpenNote); errors.As(err, new(*tamperedError)) { // each pass reports another error
		_ = l.failed(err)
	}
	l.work.Go(func() { l.loop(ctx) })
	if !l.places.none() {
		l.work.Go(l.publishLoop)
	}
	return l
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// appended is called in the transaction of each new entry. It adds a checkpoint if too many
// entries have none.
func (s *sealer) appended(ctx context.Context, tx *sql.Tx, position int64, ends *ends) error {
	s.last.Store(position)
	if s.armed.CompareAndSwap(false, true) {
		signal(s.soon)
	}
	if position-s.hint < maxTail || s.broken.Load() {
		return nil
	}
	c, err := newest(ctx, tx) // another process may have added a checkpoint
	if err == nil && position-c.size >= maxTail {
		c, _, err = s.seal(ctx, tx, c, ends.since(c.size))
	}
	if errors.As(err, new(*tamperedError)) {
		_ = s.failed(err)
		return nil // the entry is recorded anyway
	}
	s.hint = c.size
	return err
}

// loop adds a checkpoint tailWait after the first new entry.
func (s *sealer) loop(ctx context.Context) {
	due := time.NewTimer(0)
	due.Stop()
	defer due.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.soon:
			due.Reset(tailWait)
			continue
		case <-due.C:
		}
		s.armed.Store(false)
		switch err := s.pass(ctx); { // the cause may pass, such as a full disk
		case err == nil:
		case s.broken.Load():
			due.Reset(keepAgain)
		default:
			due.Reset(tailWait)
		}
	}
}

// close adds a checkpoint over the entries of this process and ends the goroutines.
func (s *sealer) close(ctx context.Context) {
	close(s.stop)
	s.work.Wait()
	// The last entries may be notes still, and the store would carry them out only when it is closed.
	if err := s.store.Flush(ctx); err != nil {
		s.log.Warn("the newest entries of the audit are not signed yet", "error", err)
		return
	}
	_ = s.pass(ctx) // pass logs its error
}

// pass adds checkpoints over all new entries, unless another process has done so.
func (s *sealer) pass(ctx context.Context) error {
	if found := s.found.Load(); found != nil {
		return s.keep.keep(found)
	}
	for more := s.last.Load() > s.sealed.Load() || s.mark.lost.Load() != nil; more && !s.broken.Load(); {
		var c checkpoint
		last := s.last.Load()
		err := s.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			if c, err = newest(ctx, tx); err == nil {
				c, more, err = s.seal(ctx, tx, c, nil)
				s.hint = c.size
			}
			return err
		})
		if err != nil {
			return s.failed(err)
		}
		s.fault.Store(nil)
		if last > c.size && !more {
			s.last.CompareAndSwap(last, c.size) // later entries were undone: seal has found the last one that was not
		}
		if c.size == 0 {
			return nil
		}
		s.sealed.Store(c.size)
		s.fresh.Store(&c)
		signal(s.made)
	}
	return nil
}

// fault is why new entries get no checkpoint, and since when.
type fault struct {
	reason string
	since  time.Time
}

// failed logs why new entries have no checkpoint, and stores the reason for [Log.Signing]. If the record was tampered
// with, signing ends, and failed also writes the fault to a file outside the database. failed returns nil if that has
// succeeded. Otherwise it returns an error, and the loop tries again.
func (s *sealer) failed(err error) error {
	f := &fault{reason: "the newest entries could not be signed, which is tried again; the server's log has the cause", since: s.now()}
	if t, ok := errors.AsType[*tamperedError](err); ok {
		f.reason = err.Error()
		if !t.since.IsZero() {
			f.since = t.since
		}
		s.found.Store(t)
		s.broken.Store(true)
		s.log.Error("the audit is no longer signed; run `sandboxmcp audit verify`", "error", err)
		if err = s.keep.keep(t); err != nil {
			signal(s.soon)
		}
	} else {
		s.log.Warn("the audit could not be signed; trying again", "error", err)
	}
	if had := s.fault.Load(); had != nil {
		f.since = had.since
	}
	s.fault.Store(f)
	return err
}

// tamperedError means that the record does not match its checkpoints. Nothing more may be
// signed, because a new checkpoint would confirm the change.
type tamperedError struct {
	reason string
	at     entryPlace // the entry that is missing; the zero value if there is none
	since  time.Time  // when a server has found that; zero: now
	kept   bool       // it was read from a file outside the database
}

func (e *tamperedError) Error() string { return "the audit was changed: " + e.reason }

// seal adds a checkpoint over the entries after the newest one, c, and returns it. Without
// new entries it returns c. more reports whether entries are left for a further checkpoint.
// seal never reads entries that have a checkpoint, so it cannot sign a later change of
// them. leaves are the leaves of the new entries, all appended by this process, or nil if
// the caller does not know them.
func (s *sealer) seal(ctx context.Context, tx *sql.Tx, c checkpoint, leaves []tlog.Hash) (_ checkpoint, more bool, err error) {
	if err = s.mark.find(ctx, tx); err != nil {
		return c, false, err
	}
	e, from, err := s.resume(ctx, tx, c)
	if err != nil {
		return c, false, err
	}
	for _, leaf := range leaves {
		e.add(leaf)
	}
	if leaves == nil {
		from, more, err = s.grow(ctx, tx, &e, from)
	} else if from == 0 {
		from = c.size + 1
	}
	if err != nil || e.size == c.size {
		return c, false, err
	}
	next := checkpoint{size: e.size, edge: e.bytes()}
	next.note, err = statement{origin: originCheckpoint, size: e.size, root: e.root(), at: s.now(), macs: from}.signed(s.signer)
	if err != nil {
		return c, false, err
	}
	if _, err = tx.ExecContext(ctx, insertCheckpoint, next.size, next.note, next.edge); err != nil {
		return c, false, fmt.Errorf("keep checkpoint: %w", err)
	}
	s.known, s.macsFrom = next.note, from
	return next, more, nil
}

// grow adds at most sealAtOnce entries to the edge. from is the first position whose entry must have a MAC, or
// 0 if no checkpoint says so yet. Then entries without a MAC are those of an older release, and the first MAC
// ends them. grow stops before an entry that was not appended with this key, and fails if that is the first.
// It returns the new from, and whether entries are left.
func (s *sealer) grow(ctx context.Context, tx *sql.Tx, e *edge, from int64) (_ int64, more bool, err error) {
	var n, last int64
	var all string
	if err := tx.QueryRowContext(ctx, selectHashes, e.size, sealAtOnce).Scan(&n, &last, &all); err != nil {
		return from, false, fmt.Errorf("read the entries to sign: %w", err)
	}
	if n == 0 {
		return from, false, nil
	}
	rows := strings.Split(all, ",")
	if last != e.size+n || int64(len(rows)) != n {
		return from, false, &tamperedError{reason: fmt.Sprintf("a row after row %d is missing or has no hash", e.size)}
	}
	for i, text := range rows {
		hash, mac := text[:min(hashLength, len(text))], text[min(hashLength, len(text)):]
		position := e.size + 1
		leaf, err := leafOf(hash)
		if err != nil {
			return from, false, &tamperedError{reason: fmt.Sprintf("row %d: %v", position, err)}
		}
		if from == 0 && mac != "" {
			from = position
		}
		if from != 0 && !s.macs.fits(position, hash, mac) {
			if i > 0 { // the entries before it get their checkpoint
				return from, true, nil
			}
			return from, false, &tamperedError{reason: fmt.Sprintf("row %d %s", position, notOurs(mac))}
		}
		e.add(leaf)
	}
	if more = n == sealAtOnce; from == 0 && !more {
		from = e.size + 1
	}
	return from, more, nil
}

// notOurs says of an entry with a wrong MAC that no server with this key has appended it there.
func notOurs(mac string) string {
	if mac == "" {
		return "was not appended by a server with this signing key: it has no MAC"
	}
	return "was not appended by a server with this signing key at this place: its MAC is another one"
}

// resume returns the edge of the newest checkpoint, and the first position whose entry must have a MAC, as the
// checkpoint states it. It checks the signature, and that no later checkpoint is missing.
func (s *sealer) resume(ctx context.Context, tx *sql.Tx, c checkpoint) (e edge, macsFrom int64, err error) {
	if was := s.sealed.Load(); c.size < was {
		return e, 0, &tamperedError{reason: fmt.Sprintf("it had %d signed entries, and the newest checkpoint is over %d", was, c.size)}
	}
	// Each time: another process may have signed entries since, and only the files show that they were removed.
	if err = s.places.compare(ctx, tx, s.signer.OpenNote, c); err != nil {
		return e, 0, err
	}
	if c.size == 0 {
		return e, 0, nil
	}
	if e, err = parseEdge(c.size, c.edge); err != nil {
		return e, 0, &tamperedError{reason: fmt.Sprintf("checkpoint %d: %v", c.size, err)}
	}
	if c.note == s.known {
		return e, s.macsFrom, nil
	}
	st, err := openStatement(s.signer.OpenNote, originCheckpoint, c.note)
	switch {
	case err != nil:
		return e, 0, &tamperedError{reason: fmt.Sprintf("checkpoint %d: %v", c.size, err)}
	case st.size != c.size || st.root != e.root():
		return e, 0, &tamperedError{reason: fmt.Sprintf("checkpoint %d is not the one that was signed", c.size)}
	}
	s.known, s.macsFrom = c.note, st.macs
	return e, st.macs, nil
}

// publishLoop writes new checkpoints to the files.
func (s *sealer) publishLoop() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.made:
		}
		select {
		case <-s.stop:
			return
		case <-pause.C:
		}
		s.publish()
		pause.Reset(publishEvery)
	}
}

// recompare compares the record with the head file if that is to be replaced and has changed since it was last
// compared: another process may have written it, and its entries may be gone. It returns the places to
// write to. After the end such a head file stays, because the store is closed.
func (s *sealer) recompare(c checkpoint) (places, error) {
	unknown, err := s.places.unknown(c)
	if err != nil || !unknown {
		return s.places, err
	}
	select {
	case <-s.stop:
		return places{second: s.places.second}, nil
	default:
	}
	ctx := context.Background() //nolint:forbidigo // no caller waits for it
	return s.places, s.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := newest(ctx, tx)
		if err == nil {
			err = s.places.compare(ctx, tx, s.signer.OpenNote, n)
		}
		return err
	})
}

// publish writes the newest checkpoint to the files. It first syncs the database, because
// otherwise a power cut would look like removed entries.
func (s *sealer) publish() {
	c := s.fresh.Load()
	if c == nil || s.places.none() || c.size <= s.published || s.broken.Load() {
		return
	}
	err, to := s.store.Sync(), s.places
	if err == nil {
		to, err = s.recompare(*c)
	}
	if err == nil {
		if err = to.write(*c); err == nil && to.head != "" {
			s.places.seen.Store(&c.note)
		}
	}
	if errors.As(err, new(*tamperedError)) {
		_ = s.failed(err)
		return
	}
	if err != nil {
		f := &fault{reason: "the newest checkpoint could not be written to the files outside the database, which is tried again; the server's log has the cause", since: s.now()}
		if s.unwritten.CompareAndSwap(nil, f) {
			s.log.Error("the newest audit checkpoint could not be written to its files; trying again", "error", err)
		}
		signal(s.made)
		return
	}
	s.unwritten.Store(nil)
	s.published = c.size
}
