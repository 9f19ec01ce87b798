package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	pieceTimeout = 10 * time.Second // time for a client to receive a piece of a file, of at most 32 KiB
	stallGrace   = time.Second      // a client that receives nothing for this long may be cut off
	onlyPatience = time.Minute      // time for the only file of a namespace while a namespace without a file waits
	onlyRate     = 1 << 20          // bytes a second: a large only file has longer, its size divided by this
	heldFiles    = 8                // memory bound, in files of the largest size
	copiedFiles  = 2                // disk bound of copies, in files of the largest size
)

// sendings bounds the bytes of files that are held while clients receive them. If
// a further file does not fit, the client that has received nothing for longest is
// disconnected. If all clients make progress, the next file waits. The waiting file of the namespace that holds
// least is next. After a while, a namespace that holds more loses a file in its favor. A namespace keeps its only
// file for longer: otherwise namespaces with one large file each would end each other's, and none would be sent.
type sendings struct {
	room  int64 // bytes
	grace time.Duration
	now   func() time.Time

	mu      sync.Mutex
	held    int64
	of      map[sandboxmcp.Namespace]int64 // held by each namespace that holds some
	list    map[*sending]struct{}
	waiting []*sending    // oldest first
	freed   chan struct{} // closed when there is more room
}

func newSendings(room int64) *sendings {
	return &sendings{room: room, grace: stallGrace, now: time.Now, of: map[sandboxmcp.Namespace]int64{}, list: map[*sending]struct{}{}, freed: make(chan struct{})}
}

// sending is one response that holds a file.
type sending struct {
	all      *sendings
	ns       sandboxmcp.Namespace // whose file it is
	response *http.ResponseController
	stop     context.CancelCauseFunc // ends the reading of the file

	// Guarded by all.mu.
	bytes int64
	since time.Time // when it was admitted
	began bool      // a piece was sent
	moved time.Time // when the client last received a piece
	cut   bool
}

// begin waits until a file of that size of the namespace fits. The error is that of ctx. If it returns no
// error, the caller must call end. The file is read with the returned context.
func (s *sendings) begin(ctx context.Context, ns sandboxmcp.Namespace, bytes int64, w http.ResponseWriter) (*sending, context.Context, error) {
	reading, stop := context.WithCancelCause(ctx)
	d := &sending{all: s, ns: ns, response: http.NewResponseController(w), stop: stop, bytes: bytes}
	s.mu.Lock()
	s.waiting = append(s.waiting, d)
	s.mu.Unlock()
	for {
		freed, again := s.admit(d)
		if freed == nil {
			return d, reading, nil
		}
		t := time.NewTimer(again)
		select {
		case <-freed:
		case <-t.C: // check again whether a client has stalled
		case <-ctx.Done():
			t.Stop()
			stop(nil)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.waiting = slices.DeleteFunc(s.waiting, func(x *sending) bool { return x == d })
			s.tellLocked() // another file may be the next one now
			return nil, nil, ctx.Err()
		}
		t.Stop()
	}
}

// admit adds a sending and returns nil. If it does not fit, or is not the next, admit may disconnect a client.
// It then returns the channel to wait for and the longest time to wait.
func (s *sendings) admit(d *sending) (freed <-chan struct{}, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.MinFunc(s.waiting, func(a, b *sending) int { return cmp.Compare(s.of[a.ns], s.of[b.ns]) }) // the oldest of those that are equal
	switch {
	case next != d:
		return s.freed, s.grace
	case s.held+d.bytes <= s.room || len(s.list) == 0:
		s.waiting = slices.DeleteFunc(s.waiting, func(x *sending) bool { return x == d })
		s.addLocked(d, d.bytes)
		s.list[d] = struct{}{}
		d.since = s.now()
		s.tellLocked() // another file is the next one now
		return nil, 0
	}
	var stalest, greedy, only *sending
	for x := range s.list {
		if x.cut {
			return s.freed, s.grace // a client was already disconnected, so room will be free soon
		}
		if x.began && (stalest == nil || x.moved.Before(stalest.moved)) {
			stalest = x
		}
		switch {
		case s.of[x.ns] > max(s.of[d.ns], x.bytes):
			if greedy == nil || s.longerLocked(x, greedy) {
				greedy = x
			}
		case s.of[d.ns] == 0 && (only == nil || x.lastLocked().Before(only.lastLocked())):
			only = x
		}
	}
	again = s.grace
	if stalest != nil {
		if again = s.grace - s.now().Sub(stalest.moved); again <= 0 {
			stalest.cutLocked()
			return s.freed, s.grace
		}
	}
	if greedy != nil {
		left := patience - s.now().Sub(greedy.since)
		if left <= 0 {
			greedy.cutLocked()
			return s.freed, s.grace
		}
		again = min(again, left)
	}
	if only != nil {
		left := only.lastLocked().Sub(s.now())
		if left <= 0 {
			only.cutLocked()
			return s.freed, s.grace
		}
		again = min(again, left)
	}
	return s.freed, again
}

// lastLocked returns the time until which the only file of a namespace is kept while a namespace without a file waits.
func (d *sending) lastLocked() time.Time {
	return d.since.Add(max(onlyPatience, time.Duration(d.bytes/onlyRate)*time.Second))
}

// longerLocked reports whether x is ended before y to make room for another namespace: the namespace of x holds more, or
// both hold the same and x was admitted earlier.
func (s *sendings) longerLocked(x, y *sending) bool {
	if its, other := s.of[x.ns], s.of[y.ns]; its != other {
		return its > other
	}
	return x.since.Before(y.since)
}

// addLocked changes what is held.
func (s *sendings) addLocked(d *sending, bytes int64) {
	s.held += bytes
	if s.of[d.ns] += bytes; s.of[d.ns] == 0 {
		delete(s.of, d.ns)
	}
}

// errOthers ends the reading of a file.
var errOthers = errors.New("other callers wait for room")

// cutLocked ends a sending, whether its file is being read or sent.
func (d *sending) cutLocked() {
	d.cut = true
	if !d.began {
		d.stop(errOthers)
	}
	_ = d.response.SetWriteDeadline(time.Unix(1, 0)) // ends a Write that waits for the client
}

// failure returns the error of reading a file, of which nothing was sent.
func (d *sending) failure(err error) error {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	if err == nil || !d.cut {
		return err
	}
	_ = d.response.SetWriteDeadline(d.all.now().Add(pieceTimeout)) // for the refusal
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "other callers waited for the file, which took longer than %v to read", patience).
		WithHint("ask again").With("retry_after_seconds", 2).WithCause(err)
}

// shrink reduces the reserved bytes once the size of the file is known.
func (d *sending) shrink(bytes int64) {
	s := d.all
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes < d.bytes {
		s.addLocked(d, bytes-d.bytes)
		d.bytes = bytes
		s.tellLocked()
	}
}

// piece is called before each piece of the file is written. It sets the deadline for the
// piece, and fails if the client was disconnected.
func (d *sending) piece() error {
	s := d.all
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.cut {
		return os.ErrDeadlineExceeded
	}
	d.began, d.moved = true, s.now()
	_ = d.response.SetWriteDeadline(s.now().Add(pieceTimeout)) // fails if the connection has no deadlines
	return nil
}

// end releases what the sending holds.
func (d *sending) end() {
	s := d.all
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, d)
	s.addLocked(d, -d.bytes)
	s.tellLocked()
	d.stop(nil)
}

func (s *sendings) tellLocked() {
	close(s.freed)
	s.freed = make(chan struct{})
}
