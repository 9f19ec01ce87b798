package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// How much of the record may be under no checkpoint: an append that would make it
// more seals in its own transaction, and a goroutine what was appended a while ago.
const (
	maxTail  = 100                    // entries
	tailWait = 800 * time.Millisecond // after the first of them

	// alarmTail is when Verify finds fault: transactions that were undone may have
	// cost a checkpoint or two.
	alarmTail = 3 * maxTail

	hashLength   = 64          // of a SHA-256 in hex
	sealAtOnce   = 1024        // entries of a checkpoint at most: of a record that was never sealed
	publishEvery = time.Second // at most so often are the head and the second place written
)

// sealer signs what the record has come to, from time to time. Several
// processes do so to one record; each looks, inside its transaction, at what the
// newest checkpoint is, and goes on from there.
type sealer struct {
	store  *store.Store
	signer Signer
	places places
	now    func() time.Time
	log    *slog.Logger

	last   atomic.Int64 // the last entry that this process has put into a transaction
	sealed atomic.Int64 // size of the newest checkpoint that this process knows to be committed
	armed  atomic.Bool  // the goroutine knows that there is something to seal
	broken atomic.Bool  // the record is not what was signed: nothing more is signed

	// Of the transactions, which come one after the other.
	hint     int64  // size of the newest checkpoint, perhaps of a transaction that was undone
	known    string // a note that was found to be ours
	compared bool   // with what stands outside of the database

	fresh     atomic.Pointer[checkpoint] // the newest that is committed
	published int64                      // size of the newest that was published

	soon, made chan struct{} // of capacity 1
	stop       chan struct{}
	work       sync.WaitGroup
}

func newSealer(ctx context.Context, s *store.Store, c Config) *sealer {
	ctx = context.WithoutCancel(ctx)
	l := &sealer{
		store: s, signer: c.Signer, places: places{c.HeadFile, c.CheckpointFile}, now: c.Now, log: c.Logger,
		soon: make(chan struct{}, 1), made: make(chan struct{}, 1), stop: make(chan struct{}),
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

// appended is told, inside its transaction, of an entry.
func (s *sealer) appended(ctx context.Context, tx *sql.Tx, position int64, ends *ends) error {
	s.last.Store(position)
	if s.armed.CompareAndSwap(false, true) {
		signal(s.soon)
	}
	if position-s.hint < maxTail || s.broken.Load() {
		return nil
	}
	c, err := newest(ctx, tx) // another process may have done it
	if err == nil && position-c.size >= maxTail {
		c, _, err = s.seal(ctx, tx, c, ends.since(c.size))
	}
	if errors.As(err, new(*tamperedError)) {
		return nil // what is done is recorded all the same, and the goroutine says it
	}
	s.hint = c.size
	return err
}

// loop seals when it is time.
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
		if s.pass(ctx) != nil && !s.broken.Load() {
			due.Reset(tailWait) // a disk that is full now may have room then
		}
	}
}

// close seals what this process has appended and ends.
func (s *sealer) close(ctx context.Context) {
	close(s.stop)
	s.work.Wait()
	_ = s.pass(ctx) // it has said what was wrong
}

// pass seals what there is, unless somebody else has.
func (s *sealer) pass(ctx context.Context) error {
	for more := true; more && !s.broken.Load() && s.last.Load() > s.sealed.Load(); {
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
			if errors.As(err, new(*tamperedError)) {
				s.broken.Store(true)
				s.log.Error("the audit is no longer signed; run `sandboxmcp audit verify`", "error", err)
			} else {
				s.log.Warn("the audit could not be signed, it will be tried again", "error", err)
			}
			return err
		}
		if last > c.size && !more {
			s.last.CompareAndSwap(last, c.size) // its transaction was undone
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

// tamperedError tells that the record is not what was signed of it. Whoever
// signed on would make that right.
type tamperedError struct{ reason string }

func (e *tamperedError) Error() string { return "the audit was changed: " + e.reason }

// seal puts a checkpoint over the entries behind the newest one, c, and returns
// it; when there are none c is the newest still. More tells that there are yet
// more entries. It reads no entry that is under a checkpoint already, so that
// one which was changed since is never signed. leaves are those of these entries,
// for who knows them.
func (s *sealer) seal(ctx context.Context, tx *sql.Tx, c checkpoint, leaves []tlog.Hash) (_ checkpoint, more bool, err error) {
	e, err := s.resume(ctx, tx, c)
	if err != nil {
		return c, false, err
	}
	for _, leaf := range leaves {
		e.add(leaf)
	}
	if leaves == nil {
		if err = e.grow(ctx, tx); err != nil {
			return c, false, err
		}
	}
	if e.size == c.size {
		return c, false, nil
	}
	more = e.size == c.size+sealAtOnce
	next := checkpoint{size: e.size, edge: e.bytes()}
	next.note, err = s.signer.Note(statement{origin: originCheckpoint, size: e.size, root: e.root(), at: s.now()}.text())
	if err != nil {
		return c, false, err
	}
	if _, err = tx.ExecContext(ctx, insertCheckpoint, next.size, next.note, next.edge); err != nil {
		return c, false, fmt.Errorf("keep checkpoint: %w", err)
	}
	s.known = next.note
	return next, more, nil
}

// grow adds the entries behind the edge, up to sealAtOnce of them.
func (e *edge) grow(ctx context.Context, tx *sql.Tx) error {
	var n, last int64
	var all string
	if err := tx.QueryRowContext(ctx, selectHashes, e.size, sealAtOnce).Scan(&n, &last, &all); err != nil {
		return fmt.Errorf("read what is to be signed: %w", err)
	}
	if n == 0 {
		return nil
	}
	if last != e.size+n || int64(len(all)) != n*hashLength {
		return &tamperedError{fmt.Sprintf("a row behind row %d is missing, or has no hash", e.size)}
	}
	for ; all != ""; all = all[hashLength:] {
		leaf, err := leafOf(all[:hashLength])
		if err != nil {
			return &tamperedError{fmt.Sprintf("row %d: %v", e.size+1, err)}
		}
		e.add(leaf)
	}
	return nil
}

// resume is the tree of the newest checkpoint, after it was found to be one that
// was signed, and that none which was signed later has gone.
func (s *sealer) resume(ctx context.Context, tx *sql.Tx, c checkpoint) (edge, error) {
	if was := s.sealed.Load(); c.size < was {
		return edge{}, &tamperedError{fmt.Sprintf("it had %d signed entries, and the newest checkpoint is over %d", was, c.size)}
	}
	if !s.compared {
		if err := s.places.compare(ctx, tx, s.signer.OpenNote, c); err != nil {
			return edge{}, err
		}
		s.compared = true
	}
	if c.size == 0 {
		return edge{}, nil
	}
	e, err := parseEdge(c.size, c.edge)
	if err != nil {
		return e, &tamperedError{fmt.Sprintf("checkpoint %d: %v", c.size, err)}
	}
	if c.note == s.known {
		return e, nil
	}
	st, err := openStatement(s.signer.OpenNote, originCheckpoint, c.note)
	switch {
	case err != nil:
		return e, &tamperedError{fmt.Sprintf("checkpoint %d: %v", c.size, err)}
	case st.size != c.size || st.root != e.root():
		return e, &tamperedError{fmt.Sprintf("checkpoint %d is not the one that was signed", c.size)}
	}
	s.known = c.note
	return e, nil
}

// publishLoop writes what is new to the places outside of the database.
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

// publish writes the newest checkpoint to the places outside of the database,
// after the disk has what it is about: a power cut must not look like a theft.
func (s *sealer) publish() {
	c := s.fresh.Load()
	if c == nil || s.places.none() || c.size <= s.published || s.broken.Load() {
		return
	}
	err := s.store.Sync()
	if err == nil {
		err = s.places.write(*c)
	}
	if err != nil {
		s.log.Error("the audit's newest checkpoint could not be written to its second place; it will be tried with the next one", "error", err)
		return
	}
	s.published = c.size
}
