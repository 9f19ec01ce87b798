// Package session maps the id of a session to its live sandbox. A session has one run at a
// time and ends when it has been unused for its lifetime; their number is bounded. An id
// whose session has ended says so for a day, so that no caller goes on in an empty session
// without knowing.
//
// A [Live] is a live session: its sandbox with the interpreter, the files, the bridged values
// and the observed walls.
//
// A session lives in the process that made it. Its row in the state directory is for other
// processes: it tells which ids a dead process had, and where the session of a living one is.
package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Config configures a Table.
type Config struct {
	Store *store.Store
	Max   int // sessions at once; at least 1

	// Known are namespaces in use. The table also remembers the last ones that wanted a session. One place is kept
	// for each of these namespaces without a session, from namespaces and callers that have one. At most half of all
	// places are kept. If Known is empty, none is kept.
	Known []sandboxmcp.Namespace

	// Holders maps a namespace to the caller that alone may use it, if that caller has several namespaces. No place
	// is kept from a caller for these namespaces.
	Holders map[sandboxmcp.Namespace]string

	// Address is where the other servers of the database reach this one; empty: they do not. Servers with an
	// address have one set of session ids: an id of another one is [ElsewhereError].
	Address string

	Now func() time.Time // nil: the machine's clock

	// Expired is called for each session that expired, after it was closed.
	Expired func(sandboxmcp.Session)
}

// Room is what a session holds: its sandbox and everything that belongs to it.
type Room interface {
	// Close ends everything in the room, also when ctx has ended. It is called once.
	Close(ctx context.Context) error
}

// Table holds the sessions of one process. Its methods may be called
// concurrently.
type Table struct {
	cfg   Config
	owner *owner

	mu      sync.Mutex
	live    map[key]*Session
	seen    []sandboxmcp.Namespace // namespaces that are not in cfg.Known, oldest first
	ending  map[key]int            // sessions that have left live while their row still says live
	lookups map[key]*look          // keys whose rows are being read
	closed  bool
	next    time.Time     // when the watch looks next
	wake    chan struct{} // it has to look sooner
	work    sync.WaitGroup
	life    context.Context //nolint:containedctx // for expiry, which has no caller
	stop    context.CancelFunc

	read func(ctx context.Context, k key) (gone, err error) // absent; tests count its calls
}

// look counts what happens to one key while its rows are read.
type look struct {
	readers  int
	removals uint64 // how many sessions of the key have left live or ending
}

type key struct {
	ns sandboxmcp.Namespace
	id sandboxmcp.SessionID
}

// Session is a session of a Table.
type Session struct {
	t      *Table
	key    key
	holder string // see [sandboxmcp.Caller]

	// guarded by t.mu
	info sandboxmcp.Session
	ttl  time.Duration
	room Room // nil while it is being made
	busy bool
	gone bool
}

// New returns an empty table. The process becomes an owner with its first session.
// Sessions outlive ctx; Close ends them.
func New(ctx context.Context, cfg Config) *Table {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Max = max(cfg.Max, 1)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &Table{
		cfg: cfg, owner: &owner{store: cfg.Store},
		live: map[key]*Session{}, ending: map[key]int{}, lookups: map[key]*look{},
		wake: make(chan struct{}, 1), life: context.WithoutCancel(ctx), stop: stop,
	}
	t.read = t.absent
	t.work.Go(func() { t.watch(ctx) })
	return t
}

// SetBounds replaces the largest number of live sessions, [Config.Known] and [Config.Holders]. It ends no session.
func (t *Table) SetBounds(n int, known []sandboxmcp.Namespace, holders map[sandboxmcp.Namespace]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.Max, t.cfg.Known, t.cfg.Holders = max(n, 1), known, holders
}

// keptLocked returns how many places are kept from who for other namespaces. t.mu must be held.
func (t *Table) keptLocked(who sandboxmcp.Caller) int {
	have := map[sandboxmcp.Namespace]bool{who.Namespace: true}
	some := false
	for k, s := range t.live {
		have[k.ns] = true
		some = some || k.ns == who.Namespace || who.Holder != "" && s.holder == who.Holder
	}
	if !some {
		return 0
	}
	others := t.cfg.Known
	if len(others) > 0 { // without settings for namespaces, the server has a single caller
		others = slices.Concat(others, t.seen)
	}
	kept := 0
	for _, other := range others {
		if own := who.Holder != "" && t.cfg.Holders[other] == who.Holder; !own && !have[other] {
			have[other] = true
			kept++
		}
	}
	return min(kept, t.cfg.Max/2)
}

// maxSeen bounds the namespaces that a table remembers. Tokens may name any number of them.
const maxSeen = 64

// seeLocked remembers a namespace that wants a session. The caller holds t.mu.
func (t *Table) seeLocked(ns sandboxmcp.Namespace) {
	if slices.Contains(t.cfg.Known, ns) || slices.Contains(t.seen, ns) {
		return
	}
	if len(t.seen) == maxSeen {
		t.seen = slices.Delete(t.seen, 0, 1)
	}
	t.seen = append(t.seen, ns)
}

// fullError is the error for a session that has no place. The caller holds t.mu.
func (t *Table) fullError(k key, kept int) error {
	msg := fmt.Sprintf("there are %d sessions, and at most %d are allowed", len(t.live), t.cfg.Max)
	if len(t.live) < t.cfg.Max {
		msg = fmt.Sprintf("there are %d sessions of at most %d, and %d places are kept for namespaces without a session", len(t.live), t.cfg.Max, kept)
	}
	if !IsMade(k.id) { // it may be a mistyped one
		msg = fmt.Sprintf("there is no session %s, and no other one can be made: %s", sandboxmcp.Quote(string(k.id)), msg)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeMaxSessions, "%s", msg).
		WithHint("terminate one that is no longer needed, or ask the operator to raise SANDBOX_MAX_SESSIONS").With("limit", t.cfg.Max).With("sessions", t.idsLocked(k.ns))
}

// NewID makes an id for a session.
func NewID() sandboxmcp.SessionID {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return sandboxmcp.SessionID("sess_" + hex.EncodeToString(b))
}

// IsMade reports whether an id has the form of those that NewID makes.
func IsMade(id sandboxmcp.SessionID) bool {
	number, ok := strings.CutPrefix(string(id), "sess_")
	return ok && len(number) == 24 && strings.Trim(number, "0123456789abcdef") == ""
}

// Claim takes a session for one run. The caller ends the run by Release. If there is no session of that id, Claim
// makes one from info and returns fresh = true. The caller then calls Furnish before the run. holder is
// [sandboxmcp.Caller.Holder] of the caller.
//
// Claim fails with session_busy, max_sessions or session_expired. If anew is true, the caller knows that an earlier
// session of that id has ended, and Claim makes a new one instead of failing with session_expired.
func (t *Table) Claim(ctx context.Context, holder string, info sandboxmcp.Session, ttl time.Duration, anew bool) (s *Session, fresh bool, err error) {
	k := key{info.Namespace, info.ID}
	err = t.lookUp(ctx, k, func(gone error) error {
		if t.closed {
			return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the server is shutting down")
		}
		if s = t.live[k]; s != nil {
			return t.claimLocked(s)
		}
		if gone != nil && (!anew || Elsewhere(gone) != "") {
			return gone
		}
		t.seeLocked(k.ns)
		if kept := t.keptLocked(sandboxmcp.Caller{Namespace: k.ns, Holder: holder}); len(t.live)+kept >= t.cfg.Max {
			return t.fullError(k, kept)
		}
		s, fresh = &Session{t: t, key: k, holder: holder, info: info, ttl: ttl, busy: true}, true
		t.live[k] = s
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return s, fresh, nil
}

// lookUp calls decide with t.mu held. gone is the reason why the id may not be made
// anew, or nil. If the id is in t.live, gone is nil and the database is not read. gone
// and the table are from one moment: if a session of this id leaves the table while its
// rows are read, lookUp reads them again. The error is decide's or the database's.
func (t *Table) lookUp(ctx context.Context, k key, decide func(gone error) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		s := t.live[k]
		switch {
		case s != nil && t.overdueLocked(s):
			t.expireLocked(s) //nolint:contextcheck // a session ends whatever becomes of ctx
			return decide(expiredError(k.id, "its time was up"))
		case s != nil:
			return decide(nil)
		case t.ending[k] > 0:
			return decide(expiredError(k.id, "it is being closed"))
		}
		gone, current, err := t.readLocked(ctx, k)
		switch {
		case err != nil:
			return err
		case t.live[k] != nil:
			// made meanwhile: the next round sees it
		case current:
			return decide(gone)
		}
	}
}

// readLocked reads the rows of a key. It unlocks t.mu meanwhile. If current is false, a
// session of the key left the table during the read, and gone may be out of date.
func (t *Table) readLocked(ctx context.Context, k key) (gone error, current bool, err error) {
	l := t.lookups[k]
	if l == nil {
		l = &look{}
		t.lookups[k] = l
	}
	l.readers++
	before := l.removals
	t.mu.Unlock()
	gone, err = t.read(ctx, k)
	t.mu.Lock()
	if l.readers--; l.readers == 0 {
		delete(t.lookups, k)
	}
	return gone, l.removals == before, err
}

// removedLocked tells the lookups of a key that a session of it has left live or ending.
func (t *Table) removedLocked(k key) {
	if l := t.lookups[k]; l != nil {
		l.removals++
	}
}

// claimLocked takes a session of the table for a run.
func (t *Table) claimLocked(s *Session) error {
	if s.busy || s.room == nil {
		return busyError(s.key.id)
	}
	s.busy = true
	t.touchLocked(s)
	return nil
}

func busyError(id sandboxmcp.SessionID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "session %s is busy with another run", sandboxmcp.Quote(string(id))).
		WithHint("wait for the run to end, or use another session")
}

func expiredError(id sandboxmcp.SessionID, why string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "session %s is gone: %s", sandboxmcp.Quote(string(id)), why).
		WithHint("create a new session and make its files and variables again")
}

// Furnish completes a session that Claim made: it gets a room and the final info. If room
// is nil, the session is removed instead. If Furnish fails, it has removed the session and
// closed the room.
func (s *Session) Furnish(ctx context.Context, room Room, info sandboxmcp.Session) error {
	if room == nil {
		s.t.mu.Lock()
		defer s.t.mu.Unlock()
		s.dropLocked()
		return nil
	}
	name, err := s.t.owner.enter(ctx)
	if err == nil {
		info.Owner = name
		err = s.t.record(ctx, info)
	}
	s.t.mu.Lock()
	if err == nil && s.t.closed {
		err = sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the server is shutting down")
	}
	if err != nil {
		s.dropLocked()
		s.t.mu.Unlock()
		return errors.Join(err, room.Close(context.WithoutCancel(ctx)))
	}
	s.info, s.room = info, room
	s.t.touchLocked(s)
	s.t.mu.Unlock()
	return nil
}

// dropLocked removes a session that was not completed from the table.
func (s *Session) dropLocked() {
	if s.t.live[s.key] == s {
		delete(s.t.live, s.key)
		s.t.removedLocked(s.key)
	}
	s.gone = true
}

// Release ends a run and restarts the session's lifetime.
func (s *Session) Release() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.busy = false
	if !s.gone {
		s.t.touchLocked(s)
	}
}

// Room returns the room of the session, or nil before Furnish.
func (s *Session) Room() Room {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.room
}

// Gone reports whether the session has ended, or is about to.
func (s *Session) Gone() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.gone
}

// Info describes the session.
func (s *Session) Info() sandboxmcp.Session {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.infoLocked()
}

func (s *Session) infoLocked() sandboxmcp.Session {
	info := s.info
	info.Status = sandboxmcp.SessionIdle
	if s.busy {
		info.Status = sandboxmcp.SessionActive
	}
	info.Interpreters = []sandboxmcp.Language{}
	if r, ok := s.room.(interface{ Interpreters() []sandboxmcp.Language }); ok {
		info.Interpreters = r.Interpreters()
	}
	return info
}

// Find returns a live session, busy or not, and restarts its lifetime. It fails with
// session_not_found or session_expired.
func (t *Table) Find(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (*Session, error) {
	var found *Session
	k := key{ns, id}
	err := t.lookUp(ctx, k, func(gone error) error {
		if s := t.live[k]; s != nil && s.room != nil {
			t.touchLocked(s)
			found = s
			return nil
		}
		if gone != nil {
			return gone
		}
		return notFound(id)
	})
	return found, err
}

// Lives returns nil if a session of the id is live, in this process or another one. It does not restart
// its lifetime. It fails with session_not_found.
func (t *Table) Lives(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error {
	_, err := t.Since(ctx, ns, id)
	return err
}

// Since returns when the oldest live session of the id was made, in this process or another one. It does
// not restart its lifetime. It fails with session_not_found.
func (t *Table) Since(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (time.Time, error) {
	var since time.Time
	t.mu.Lock()
	if s := t.live[key{ns, id}]; s != nil && s.room != nil && !t.overdueLocked(s) {
		since = s.info.CreatedAt
	}
	t.mu.Unlock()
	elsewhere, err := t.elsewhere(ctx, key{ns, id})
	if err != nil {
		return since, err
	}
	if since.IsZero() || !elsewhere.IsZero() && elsewhere.Before(since) {
		since = elsewhere
	}
	if since.IsZero() {
		return since, notFound(id)
	}
	return since, nil
}

// idsLocked returns the ids of a namespace's live sessions, in their order. t.mu is held.
func (t *Table) idsLocked(ns sandboxmcp.Namespace) []sandboxmcp.SessionID {
	ids := []sandboxmcp.SessionID{}
	for k := range t.live {
		if k.ns == ns {
			ids = append(ids, k.id)
		}
	}
	slices.Sort(ids)
	return ids
}

func notFound(id sandboxmcp.SessionID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s is not known", sandboxmcp.Quote(string(id))).
		WithHint("use the id of a live session; a run with a new id creates a session")
}

// List returns the live sessions of a namespace, or of all if ns is empty, the oldest
// first.
func (t *Table) List(ns sandboxmcp.Namespace) []sandboxmcp.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []sandboxmcp.Session{}
	for k, s := range t.live {
		if s.room != nil && (ns == "" || k.ns == ns) && !t.overdueLocked(s) {
			list = append(list, s.infoLocked())
		}
	}
	slices.SortFunc(list, func(a, b sandboxmcp.Session) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list
}

// Len returns the number of live sessions.
func (t *Table) Len() int { return len(t.List("")) }

// Remove removes a session from the table and frees its id. The caller closes the session
// that it returns. A busy session fails with session_busy, unless force is set: then the
// caller also ends the run. An expired id is freed as well and fails with session_expired
// once more.
func (t *Table) Remove(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, force bool) (*Session, error) {
	var s *Session
	k := key{ns, id}
	err := t.lookUp(ctx, k, func(gone error) error {
		switch found := t.live[k]; {
		case gone != nil:
			return gone
		case found == nil:
			return notFound(id)
		case found.room == nil || found.busy && !force:
			return busyError(id)
		default:
			s = found
			t.leaveLocked(s)
			return nil
		}
	})
	switch {
	case s != nil:
		defer t.ended(k)
		return s, t.forget(context.WithoutCancel(ctx), s.info) // it has left the table: its row has to follow
	case sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionExpired:
		return nil, err
	}
	_, swept := t.Sweep(ctx) // marks the sessions of dead owners as expired
	return nil, errors.Join(err, swept, t.forgetExpired(ctx, k))
}

// leaveLocked removes a session from the table. The caller changes its row in the database
// and then calls ended.
func (t *Table) leaveLocked(s *Session) {
	delete(t.live, s.key)
	s.gone = true
	t.ending[s.key]++
	t.removedLocked(s.key)
}

// ended notes that the row of a session no longer says live, after leaveLocked.
func (t *Table) ended(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending[k]--; t.ending[k] <= 0 {
		delete(t.ending, k)
	}
	t.removedLocked(k)
}

// Lost removes and closes a session whose sandbox has ended by itself. Its id answers
// session_expired.
func (t *Table) Lost(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.gone {
		t.expireLocked(s)
	}
}

// Close closes every session. Further claims fail with cancelled.
func (t *Table) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	var all []*Session
	for _, s := range t.live {
		if s.room != nil {
			all = append(all, s)
		}
		s.gone = true
	}
	clear(t.live)
	t.mu.Unlock()
	t.stop()
	t.work.Wait()
	errs := closeRooms(context.WithoutCancel(ctx), all)
	if id := t.owner.id(); id != "" {
		errs = append(errs, t.leave(ctx, id), t.unlist(ctx, id), t.owner.leave())
	}
	return errors.Join(errs...)
}

// mostClosing is how many rooms are closed at a time: a sandbox that does not end delays the end of the server, and many
// of them no longer than one.
const mostClosing = 128

// closeRooms closes the rooms of sessions.
func closeRooms(ctx context.Context, all []*Session) []error {
	errs, places := make([]error, len(all)), make(chan struct{}, mostClosing)
	var work sync.WaitGroup
	for i, s := range all {
		places <- struct{}{}
		work.Go(func() {
			errs[i] = s.room.Close(ctx)
			<-places
		})
	}
	work.Wait()
	return errs
}
