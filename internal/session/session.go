// Package session knows which live sandbox a session's id means. One run at a
// time, so many sessions at most, each until nobody has used it for its time;
// and of an id that is gone, why: so that nobody works on in a silently empty
// session.
//
// Sessions live in the process that made them. The table in the state directory
// is for those who come later: it tells which ids a process had that has died.
package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Config says how many sessions there may be and how long they live.
type Config struct {
	Store *store.Store
	Max   int              // at once; at least 1
	Now   func() time.Time // nil: the machine's clock

	// Expired is called for each session whose time was up, after it is closed.
	Expired func(sandboxmcp.Session)
}

// Room is what a session holds: its sandbox and all that goes with it.
type Room interface {
	// Close ends everything in it, also when ctx has ended. It is called once.
	Close(ctx context.Context) error
}

// Table holds the sessions of one process. Its methods may be called
// concurrently.
type Table struct {
	cfg   Config
	owner *owner

	mu       sync.Mutex
	live     map[key]*Session
	ending   map[key]int // sessions that have left live while their row still says live
	removals uint64      // how many sessions have left live or ending; see lookUp
	closed   bool
	wake     chan struct{} // the next expiry may be sooner
	work     sync.WaitGroup
	life     context.Context //nolint:containedctx // of what nobody calls: expiry
	stop     context.CancelFunc
}

type key struct {
	ns sandboxmcp.Namespace
	id sandboxmcp.SessionID
}

// Session is one of them.
type Session struct {
	t   *Table
	key key

	// guarded by t.mu
	info sandboxmcp.Session
	ttl  time.Duration
	room Room // nil while it is being made
	busy bool
	gone bool
}

// New returns an empty table. The process is entered as an owner when its first
// session is made. Sessions live until Close, whatever becomes of ctx.
func New(ctx context.Context, cfg Config) *Table {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Max = max(cfg.Max, 1)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &Table{cfg: cfg, live: map[key]*Session{}, ending: map[key]int{}, wake: make(chan struct{}, 1), life: context.WithoutCancel(ctx), stop: stop, owner: &owner{dir: cfg.Store.Dir()}}
	t.work.Go(func() { t.watch(ctx) })
	return t
}

// NewID makes an id.
func NewID() sandboxmcp.SessionID {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return sandboxmcp.SessionID("sess_" + hex.EncodeToString(b))
}

var made = regexp.MustCompile(`^sess_[0-9a-f]{24}$`)

// IsMade reports whether an id is of the form that NewID makes.
func IsMade(id sandboxmcp.SessionID) bool { return made.MatchString(string(id)) }

// Claim takes the session for one run, and makes it out of info when there is
// none: then fresh is true, and the caller has to call Furnish before anything
// else. It fails with session_busy, max_sessions, and session_expired unless the
// id is asked for anew by somebody who knows that nothing of it is left. The
// caller ends the run by Release.
func (t *Table) Claim(ctx context.Context, info sandboxmcp.Session, ttl time.Duration, anew bool) (s *Session, fresh bool, err error) {
	k := key{info.Namespace, info.ID}
	err = t.lookUp(ctx, k, func(gone error) error {
		if t.closed {
			return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the server is shutting down")
		}
		if s = t.live[k]; s != nil {
			return t.claimLocked(s)
		}
		if gone != nil && !anew {
			return gone
		}
		if len(t.live) >= t.cfg.Max {
			return sandboxmcp.Errorf(sandboxmcp.CodeMaxSessions, "there are %d sessions, and %d are allowed", len(t.live), t.cfg.Max).
				WithHint("terminate one that is no longer needed, or let the operator raise SANDBOX_MAX_SESSIONS").With("limit", t.cfg.Max)
		}
		s, fresh = &Session{t: t, key: k, info: info, ttl: ttl, busy: true}, true
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
// and the table are from one moment: if a session leaves the table while the database is
// read, lookUp reads it again. The error is decide's or the database's.
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
		removals := t.removals
		t.mu.Unlock()
		gone, err := t.absent(ctx, k)
		t.mu.Lock()
		switch {
		case err != nil:
			return err
		case t.live[k] != nil:
			// made meanwhile: the next round sees it
		case t.removals == removals:
			return decide(gone)
		}
	}
}

// claimLocked takes a session that is in the table for a run.
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
		WithHint("create a new session; its files and variables have to be made again")
}

// Furnish gives a session that Claim made what it holds, or takes it back when
// room is nil. info is what is known of it now.
func (s *Session) Furnish(ctx context.Context, room Room, info sandboxmcp.Session) error {
	if room == nil {
		s.t.mu.Lock()
		defer s.t.mu.Unlock()
		s.dropLocked()
		return nil
	}
	name, err := s.t.owner.enter()
	if err == nil {
		info.Owner = name
		err = s.t.insert(ctx, info)
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

// dropLocked takes a session that was not made out of the table.
func (s *Session) dropLocked() {
	if s.t.live[s.key] == s {
		delete(s.t.live, s.key)
		s.t.removals++
	}
	s.gone = true
}

// Release ends a run. The session's time begins anew.
func (s *Session) Release() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.busy = false
	if !s.gone {
		s.t.touchLocked(s)
	}
}

// Room is what the session holds.
func (s *Session) Room() Room {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.room
}

// Info is what is known of the session.
func (s *Session) Info() sandboxmcp.Session {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.infoLocked()
}

func (s *Session) infoLocked() sandboxmcp.Session {
	info := s.info
	info.Status = sandboxmcp.SessionActive
	if s.busy {
		info.Status = sandboxmcp.SessionBusy
	}
	return info
}

// Find returns a live session, beside whatever runs in it, and counts as use. It
// fails with session_not_found or session_expired.
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

func notFound(id sandboxmcp.SessionID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s is not known", sandboxmcp.Quote(string(id))).
		WithHint("use one that is there, or leave the id out to have a new one")
}

// List returns the live sessions of a namespace, or of all when ns is empty, the
// oldest first.
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

// Len is how many sessions live.
func (t *Table) Len() int { return len(t.List("")) }

// Remove takes a session out of the table and returns it for the caller to
// close; its id is free again. With force it does so while a run is going, which
// is for the caller to end; without it that is session_busy. An id that has
// expired is freed, too, and answers session_expired once more.
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
		return s, t.forget(ctx, s.info)
	case sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionExpired:
		return nil, err
	}
	_, swept := t.Sweep(ctx) // what dead owners had counts as expired
	return nil, errors.Join(err, swept, t.forgetExpired(ctx, k))
}

// leaveLocked takes a session out of the table. The caller changes its row in
// the database and then calls ended.
func (t *Table) leaveLocked(s *Session) {
	delete(t.live, s.key)
	s.gone = true
	t.ending[s.key]++
	t.removals++
}

// ended notes that the row of a session no longer says live, after leaveLocked.
func (t *Table) ended(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending[k]--; t.ending[k] <= 0 {
		delete(t.ending, k)
	}
	t.removals++
}

// Lost takes a session out whose sandbox has ended by itself. Its id answers
// session_expired.
func (t *Table) Lost(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.gone {
		t.expireLocked(s)
	}
}

// Close closes every session; nothing of them is left in the table.
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
	var errs []error
	for _, s := range all {
		errs = append(errs, s.room.Close(context.WithoutCancel(ctx)))
	}
	if id := t.owner.id(); id != "" {
		errs = append(errs, t.leave(ctx, id), t.owner.leave())
	}
	return errors.Join(errs...)
}
