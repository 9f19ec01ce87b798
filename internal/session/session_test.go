package session_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// room counts how often it was closed.
type room struct{ closed atomic.Int32 }

func (r *room) Close(context.Context) error { r.closed.Add(1); return nil }

// kit is a table over a state directory, with a clock of the test's own.
type kit struct {
	*session.Table

	dir     string
	mu      sync.Mutex
	at      time.Time
	expired chan sandboxmcp.Session
}

func (k *kit) now() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

func (k *kit) pass(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = k.at.Add(d)
}

func newKit(t *testing.T, dir string, most int) *kit {
	t.Helper()
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	k := &kit{dir: dir, at: time.Now(), expired: make(chan sandboxmcp.Session, 10)}
	k.Table = session.New(t.Context(), session.Config{Store: s, Max: most, Now: k.now, Expired: func(s sandboxmcp.Session) { k.expired <- s }})
	t.Cleanup(func() {
		if err := k.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	})
	return k
}

func info(id string) sandboxmcp.Session {
	return sandboxmcp.Session{ID: sandboxmcp.SessionID(id), Namespace: "ns", Language: sandboxmcp.Python, CreatedAt: time.Now()}
}

// open makes a session that is not busy.
func (k *kit) open(t *testing.T, id string, ttl time.Duration) (*session.Session, *room) {
	t.Helper()
	s, fresh, err := k.Claim(t.Context(), "", info(id), ttl, false)
	if err != nil || !fresh {
		t.Fatalf("Claim %s: fresh %v, %v", id, fresh, err)
	}
	r := &room{}
	if err := s.Furnish(t.Context(), r, info(id)); err != nil {
		t.Fatal(err)
	}
	s.Release()
	return s, r
}

func (k *kit) claim(t *testing.T, id string) (bool, sandboxmcp.Code) {
	t.Helper()
	s, fresh, err := k.Claim(t.Context(), "", info(id), time.Hour, false)
	if err != nil {
		return false, sandboxmcp.CodeOf(err)
	}
	if fresh {
		_ = s.Furnish(t.Context(), nil, info(id))
	}
	s.Release()
	return fresh, ""
}

func (k *kit) finds(t *testing.T, id string) sandboxmcp.Code {
	t.Helper()
	_, err := k.Find(t.Context(), "ns", sandboxmcp.SessionID(id))
	if err != nil {
		return sandboxmcp.CodeOf(err)
	}
	return ""
}

func TestOneRunAtATime(t *testing.T) {
	k := newKit(t, t.TempDir(), 10)
	k.open(t, "a", time.Hour)
	var won, busy atomic.Int32
	hold := make(chan struct{})
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			s, fresh, err := k.Claim(t.Context(), "", info("a"), time.Hour, false)
			switch {
			case err == nil && !fresh:
				won.Add(1)
				<-hold
				s.Release()
			case sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionBusy:
				if busy.Add(1) == 15 {
					close(hold)
				}
			default:
				t.Errorf("Claim: fresh %v, %v", fresh, err)
			}
		})
	}
	wait.Wait()
	if won.Load() != 1 || busy.Load() != 15 {
		t.Errorf("%d runs and %d refusals, want 1 and 15", won.Load(), busy.Load())
	}
	if fresh, code := k.claim(t, "a"); fresh || code != "" {
		t.Errorf("afterwards: fresh %v, %v", fresh, code)
	}
}

// An id that is being made is nobody else's, and one whose making fails is free.
func TestASessionThatIsBeingMadeIsBusy(t *testing.T) {
	k := newKit(t, t.TempDir(), 10)
	s, fresh, err := k.Claim(t.Context(), "", info("a"), time.Hour, false)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	if _, code := k.claim(t, "a"); code != sandboxmcp.CodeSessionBusy {
		t.Errorf("while it is made: %v", code)
	}
	if got := k.finds(t, "a"); got != sandboxmcp.CodeSessionNotFound {
		t.Errorf("Find while it is made: %v", got)
	}
	if err := s.Furnish(t.Context(), nil, info("a")); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if fresh, code := k.claim(t, "a"); !fresh || code != "" {
		t.Errorf("after it failed: fresh %v, %v", fresh, code)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	k := newKit(t, t.TempDir(), 2)
	k.open(t, "a", time.Hour)
	k.open(t, "b", time.Hour)
	if _, code := k.claim(t, "c"); code != sandboxmcp.CodeMaxSessions {
		t.Errorf("the third: %v", code)
	}
	if _, err := k.Remove(t.Context(), "ns", "a", false); err != nil {
		t.Fatal(err)
	}
	if fresh, code := k.claim(t, "c"); !fresh || code != "" {
		t.Errorf("after one was removed: fresh %v, %v", fresh, code)
	}
}

// TestPlacesAreKeptForOthers: one namespace cannot open all sessions while another that is in use has none.
func TestPlacesAreKeptForOthers(t *testing.T) {
	k := newKit(t, t.TempDir(), 4)
	id := func(round, i int) string { return strconv.Itoa(round) + "-" + strconv.Itoa(i) }
	fill := func(ns sandboxmcp.Namespace, round int) (opened int) {
		for i := range 8 {
			made := info(id(round, i))
			made.Namespace = ns
			s, fresh, err := k.Claim(t.Context(), "", made, time.Hour, false)
			if err != nil {
				if sandboxmcp.CodeOf(err) != sandboxmcp.CodeMaxSessions {
					t.Errorf("%s: %v, want max_sessions", ns, err)
				}
				return opened
			}
			if fresh {
				_ = s.Furnish(t.Context(), &room{}, made)
				opened++
			}
			s.Release()
		}
		return opened
	}
	for round, c := range []struct {
		known []sandboxmcp.Namespace
		want  map[sandboxmcp.Namespace]int
	}{
		{nil, map[sandboxmcp.Namespace]int{"a": 4, "b": 0}},
		{[]sandboxmcp.Namespace{"a", "a"}, map[sandboxmcp.Namespace]int{"a": 3, "b": 1}}, // b was seen
		{[]sandboxmcp.Namespace{"a", "b"}, map[sandboxmcp.Namespace]int{"a": 3, "b": 1}},
		{[]sandboxmcp.Namespace{"b", "c", "d", "e", "f"}, map[sandboxmcp.Namespace]int{"a": 2, "b": 1}},
		{nil, map[sandboxmcp.Namespace]int{"a": 4, "b": 0}}, // both were seen, and nobody else has a namespace
	} {
		k.SetBounds(4, c.known, nil)
		for _, ns := range []sandboxmcp.Namespace{"a", "b"} {
			if got := fill(ns, round); got != c.want[ns] {
				t.Errorf("known %v: %s has %d sessions, want %d", c.known, ns, got, c.want[ns])
			}
		}
		for _, ns := range []sandboxmcp.Namespace{"a", "b"} {
			for i := range 8 {
				_, _ = k.Remove(t.Context(), ns, sandboxmcp.SessionID(id(round, i)), true)
			}
		}
	}
}

// TestCancelledRemovalFreesTheID: a caller that leaves while its session is removed leaves
// no row behind, which would keep the id until the server ends.
func TestCancelledRemovalFreesTheID(t *testing.T) {
	k := newKit(t, t.TempDir(), 2)
	k.open(t, "a", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := k.Remove(ctx, "ns", "a", false); s == nil || err != nil {
		t.Errorf("got %v, %v, want the session", s, err)
	}
	if fresh, code := k.claim(t, "a"); !fresh || code != "" {
		t.Errorf("the id: got fresh %v, %q, want a new session", fresh, code)
	}
}

func TestUnusedSessionsExpire(t *testing.T) {
	k := newKit(t, t.TempDir(), 10)
	_, r := k.open(t, "a", time.Minute)
	k.pass(50 * time.Second)
	if got := k.finds(t, "a"); got != "" { // counts as use
		t.Fatal(got)
	}
	k.pass(50 * time.Second)
	s, _, err := k.Claim(t.Context(), "", info("a"), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	k.pass(time.Hour) // a run that takes long
	s.Release()
	if got := k.finds(t, "a"); got != "" {
		t.Fatalf("after a long run: %v", got)
	}
	k.pass(61 * time.Second)
	for _, what := range []string{"at once", "again"} {
		if _, code := k.claim(t, "a"); code != sandboxmcp.CodeSessionExpired {
			t.Errorf("%s: %v", what, code)
		}
	}
	if got := <-k.expired; got.ID != "a" {
		t.Errorf("Expired was called with %v", got.ID)
	}
	if n := r.closed.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
	if got := k.finds(t, "a"); got != sandboxmcp.CodeSessionExpired {
		t.Errorf("Find: %v", got)
	}
	if n := k.Len(); n != 0 {
		t.Errorf("%d sessions live", n)
	}
	if _, err := k.Remove(t.Context(), "ns", "a", false); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionExpired {
		t.Errorf("Remove: %v", err)
	}
	if fresh, code := k.claim(t, "a"); !fresh || code != "" {
		t.Errorf("after it was closed: fresh %v, %v", fresh, code)
	}
}

func TestExpiredIsMadeAnew(t *testing.T) {
	k := newKit(t, t.TempDir(), 10)
	k.open(t, "a", time.Minute)
	k.pass(2 * time.Minute)
	s, fresh, err := k.Claim(t.Context(), "", info("a"), time.Minute, true)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	<-k.expired
	if err := s.Furnish(t.Context(), &room{}, info("a")); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if got := k.finds(t, "a"); got != "" {
		t.Errorf("the new one: %v", got)
	}
}

func TestTombstonesAreForgotten(t *testing.T) {
	k := newKit(t, t.TempDir(), 10)
	k.open(t, "a", time.Minute)
	k.pass(2 * time.Minute)
	k.finds(t, "a")
	<-k.expired
	k.pass(25 * time.Hour)
	if got := k.finds(t, "a"); got != sandboxmcp.CodeSessionNotFound {
		t.Errorf("after a day: %v", got)
	}
	if _, err := k.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two processes on one directory: each has its own, and one that dies leaves word.
func TestSessionsOfADeadOwnerExpire(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	a, b := newKit(t, dir, 10), newKit(t, dir, 10)
	a.open(t, "mine", time.Hour)
	if got := b.finds(t, "mine"); got != sandboxmcp.CodeSessionNotFound {
		t.Errorf("another's: %v", got)
	}
	_, r := b.open(t, "mine", time.Hour)
	if _, err := b.Remove(t.Context(), "ns", "mine", false); err != nil {
		t.Fatal(err)
	}
	if got := a.finds(t, "mine"); got != "" {
		t.Errorf("after the other removed its own: %v", got)
	}
	if n, err := b.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("Sweep beside a living owner: %d, %v", n, err)
	}
	if n := r.closed.Load(); n != 0 { // Remove leaves that to its caller
		t.Errorf("closed %d times", n)
	}
	// what a killed owner leaves: its file, which nobody holds locked any more
	files, err := filepath.Glob(filepath.Join(dir, "owners", "*.owner"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	list := a.List("ns")
	dead := filepath.Join(dir, "owners", list[0].Owner+".owner")
	if err := os.Rename(dead, dead+".old"); err != nil { // the lock goes with the file
		t.Fatal(err)
	}
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, code := b.claim(t, "mine"); code != sandboxmcp.CodeSessionExpired {
		t.Errorf("of a dead owner: %v", code)
	}
	if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("Sweep: %d, %v; want 1", n, err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the dead owner is left: %v", err)
	}
	if _, code := b.claim(t, "mine"); code != sandboxmcp.CodeSessionExpired {
		t.Errorf("of a dead owner, swept: %v", code)
	}
	if err := os.Rename(dead+".old", dead); err != nil {
		t.Fatal(err)
	}
}

func TestCloseClosesAll(t *testing.T) {
	dir := t.TempDir()
	k := newKit(t, dir, 10)
	_, r := k.open(t, "a", time.Hour)
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.closed.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
	if _, code := k.claim(t, "b"); code != sandboxmcp.CodeCancelled {
		t.Errorf("after Close: %v", code)
	}
	if got := newKit(t, dir, 10).finds(t, "a"); got != sandboxmcp.CodeSessionExpired {
		t.Errorf("the next process: %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "owners", "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Many runs that name one new id at the same moment: one of them makes the
// session, the others join it or find it busy.
func TestFirstRunsOfANewIDNeverAnswerExpired(t *testing.T) {
	k := newKit(t, t.TempDir(), 100)
	for round := range 25 {
		id := "new-" + strconv.Itoa(round)
		var made atomic.Int32
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				if code := k.finds(t, id); code != "" && code != sandboxmcp.CodeSessionNotFound {
					t.Errorf("Find %s: got %s, want success or session_not_found", id, code)
				}
				s, fresh, err := k.Claim(t.Context(), "", info(id), time.Hour, false)
				if err != nil {
					if code := sandboxmcp.CodeOf(err); code != sandboxmcp.CodeSessionBusy {
						t.Errorf("Claim %s: got %s, want success or session_busy", id, code)
					}
					return
				}
				defer s.Release()
				if fresh {
					made.Add(1)
					if err := s.Furnish(t.Context(), &room{}, info(id)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		if made.Load() != 1 {
			t.Errorf("session %s: made %d times, want once", id, made.Load())
		}
	}
}

// A session that expires while others ask for its id is never made anew in
// silence: every answer is the old session, busy or expired.
func TestAnIDThatExpiresIsNeverMadeAnewInSilence(t *testing.T) {
	k := newKit(t, t.TempDir(), 100)
	for round := range 25 {
		id := "old-" + strconv.Itoa(round)
		s, _ := k.open(t, id, time.Hour)
		var wait sync.WaitGroup
		wait.Go(func() { k.Lost(s) })
		for range 16 {
			wait.Go(func() {
				s, fresh, err := k.Claim(t.Context(), "", info(id), time.Hour, false)
				if err == nil {
					s.Release()
				}
				if fresh {
					t.Errorf("Claim %s: got a new session, want the old one, session_busy or session_expired", id)
				}
			})
		}
		wait.Wait()
		<-k.expired
	}
}

// A lookup reads the database again only if a session of its own id has left the
// table meanwhile.
func TestLookupsReadTheDatabaseOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave string // the session that leaves during each of the first three reads
		want  int
	}{
		{"nothing leaves", "", 1},
		{"another session leaves", "other", 1},
		{"a session of the id leaves", "asked", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t, t.TempDir(), 10)
			reads, inside := 0, false
			k.OnRead(func(id sandboxmcp.SessionID) {
				if inside || id != "asked" {
					return
				}
				if reads++; reads > 3 || tt.leave == "" {
					return
				}
				inside = true
				defer func() { inside = false }()
				k.open(t, tt.leave, time.Hour)
				if _, err := k.Remove(t.Context(), "ns", sandboxmcp.SessionID(tt.leave), false); err != nil {
					t.Error(err)
				}
			})
			if got := k.finds(t, "asked"); got != sandboxmcp.CodeSessionNotFound {
				t.Errorf("Find: got %q, want session_not_found", got)
			}
			if reads != tt.want {
				t.Errorf("got %d reads of the database, want %d", reads, tt.want)
			}
		})
	}
}

// TestSessionsOfOthersLive: a session is live for each process, and only in its namespace.
func TestSessionsOfOthersLive(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	a, b := newKit(t, dir, 10), newKit(t, dir, 10)
	a.open(t, "mine", time.Hour)
	for _, k := range []*kit{a, b} {
		if err := k.Lives(t.Context(), "ns", "mine"); err != nil {
			t.Errorf("got %v, want a live session", err)
		}
		for ns, id := range map[sandboxmcp.Namespace]sandboxmcp.SessionID{"ns": "other", "other": "mine"} {
			if err := k.Lives(t.Context(), ns, id); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
				t.Errorf("%s in %s: got %v, want session_not_found", id, ns, err)
			}
		}
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Lives(t.Context(), "ns", "mine"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("after its process has closed it: got %v, want session_not_found", err)
	}
}
