package server

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	pieceTimeout = 10 * time.Second // time for a client to receive a piece of a file, of at most 32 KiB
	stallGrace   = time.Second      // a client that receives nothing for this long may be cut off
	heldFiles    = 8                // memory bound, in files of the largest size
	copiedFiles  = 2                // disk bound of copies, in files of the largest size
)

// sendings bounds the bytes of files that are held while clients receive them. If
// a further file does not fit, the client that has received nothing for longest is
// disconnected. If all clients make progress, the next file waits.
type sendings struct {
	room  int64 // bytes
	grace time.Duration
	now   func() time.Time

	mu    sync.Mutex
	held  int64
	list  map[*sending]struct{}
	freed chan struct{} // closed when there is more room
}

func newSendings(room int64) *sendings {
	return &sendings{room: room, grace: stallGrace, now: time.Now, list: map[*sending]struct{}{}, freed: make(chan struct{})}
}

// sending is one response that holds a file.
type sending struct {
	all      *sendings
	response *http.ResponseController

	// Guarded by all.mu.
	bytes int64
	began bool      // a piece was sent
	moved time.Time // when the client last received a piece
	cut   bool
}

// begin waits until a file of that size fits. The error is that of ctx. If it returns no
// error, the caller must call end.
func (s *sendings) begin(ctx context.Context, bytes int64, w http.ResponseWriter) (*sending, error) {
	d := &sending{all: s, response: http.NewResponseController(w), bytes: bytes}
	for {
		freed, again := s.admit(d)
		if freed == nil {
			return d, nil
		}
		t := time.NewTimer(again)
		select {
		case <-freed:
		case <-t.C: // check again whether a client has stalled
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		t.Stop()
	}
}

// admit adds a sending and returns nil. If it does not fit, admit disconnects a client that
// has stalled. It then returns the channel to wait for and the longest time to wait.
func (s *sendings) admit(d *sending) (freed <-chan struct{}, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held+d.bytes <= s.room || len(s.list) == 0 {
		s.held += d.bytes
		s.list[d] = struct{}{}
		return nil, 0
	}
	var stalest *sending
	for x := range s.list {
		if x.cut {
			return s.freed, s.grace // a client was already disconnected, so room will be free soon
		}
		if x.began && (stalest == nil || x.moved.Before(stalest.moved)) {
			stalest = x
		}
	}
	if stalest == nil {
		return s.freed, s.grace
	}
	if left := s.grace - s.now().Sub(stalest.moved); left > 0 {
		return s.freed, left
	}
	stalest.cut = true
	_ = stalest.response.SetWriteDeadline(time.Unix(1, 0)) // ends a Write that waits for the client
	return s.freed, s.grace
}

// shrink reduces the reserved bytes once the size of the file is known.
func (d *sending) shrink(bytes int64) {
	s := d.all
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes < d.bytes {
		s.held -= d.bytes - bytes
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
	s.held -= d.bytes
	s.tellLocked()
}

func (s *sendings) tellLocked() {
	close(s.freed)
	s.freed = make(chan struct{})
}
