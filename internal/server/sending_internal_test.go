package server

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestAStalledClientMakesRoom: a client that takes nothing is cut off for another that
// waits. A client that takes its pieces is not.
func TestAStalledClientMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSendings(100)
		begin := func(bytes int64) *sending {
			t.Helper()
			d, _, err := s.begin(t.Context(), "a", bytes, httptest.NewRecorder())
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		steady, stalled := begin(40), begin(40)
		for _, d := range []*sending{steady, stalled} {
			if err := d.piece(); err != nil {
				t.Fatal(err)
			}
		}
		third := make(chan *sending)
		go func() { third <- begin(40) }()
		for range 30 { // both take a piece now and then
			<-time.NewTimer(stallGrace / 2).C
			for _, d := range []*sending{steady, stalled} {
				if err := d.piece(); err != nil {
					t.Fatalf("got %v for a client that takes its pieces, want no error", err)
				}
			}
		}
		for range 3 {
			<-time.NewTimer(stallGrace / 2).C
			if err := steady.piece(); err != nil {
				t.Fatalf("got %v for the steady client, want no error", err)
			}
		}
		synctest.Wait()
		if err := stalled.piece(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the stalled one: got %v, want the end of its time", err)
		}
		stalled.end()
		d := <-third
		d.shrink(10)
		begin(50).end() // 40 + 10 + 50
		d.end()
		steady.end()
		if s.held != 0 || len(s.list) != 0 {
			t.Errorf("got %d bytes of %d held at the end, want none", s.held, len(s.list))
		}
	})
}

// TestAClientThatLeavesWaitsForNoRoom.
func TestAClientThatLeavesWaitsForNoRoom(t *testing.T) {
	s := newSendings(10)
	d, _, err := s.begin(t.Context(), "a", 10, httptest.NewRecorder())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.begin(ctx, "a", 1, httptest.NewRecorder()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	d.end()
	large, _, err := s.begin(t.Context(), "a", 1000, httptest.NewRecorder()) // larger than all room: alone
	if err != nil {
		t.Fatal(err)
	}
	large.end()
}

// TestFilesOfOneNamespaceLeaveRoom: a namespace that holds nothing is served before those that wait and hold some, and
// after a while one of these loses a file for it, whether that is read or sent.
func TestFilesOfOneNamespaceLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSendings(100)
		type begun struct {
			*sending
			reading context.Context
		}
		begin := func(ns sandboxmcp.Namespace) begun {
			d, reading, err := s.begin(t.Context(), ns, 50, httptest.NewRecorder())
			if err != nil {
				t.Error(err)
			}
			return begun{d, reading}
		}
		read := begin("greedy")
		<-time.NewTimer(time.Millisecond).C // it is held for longer than the next
		sent := begin("greedy")
		more, other := make(chan begun, 9), make(chan begun, 1)
		for range cap(more) {
			go func() { more <- begin("greedy") }()
		}
		synctest.Wait()
		go func() { other <- begin("other") }()
		for range 2 * patience / stallGrace { // the client takes its pieces
			if sent.piece() != nil {
				break
			}
			<-time.NewTimer(stallGrace / 2).C
		}
		synctest.Wait()
		if got := context.Cause(read.reading); !errors.Is(got, errOthers) {
			t.Errorf("the file that is read for long: got %v, want that others wait", got)
		}
		if got := sandboxmcp.CodeOf(read.failure(context.Canceled)); got != sandboxmcp.CodeQueueFull {
			t.Errorf("its error: got %s, want queue_full", got)
		}
		read.end()
		o := <-other // before those of the greedy one
		if err := sent.piece(); err != nil {
			t.Errorf("the other file, after there was room: got %v, want it sent", err)
		}
		o.end()
		sent.end()
		for range cap(more) {
			d := <-more
			d.end()
		}
		if s.held != 0 || len(s.of) != 0 || len(s.waiting) != 0 {
			t.Errorf("got %d bytes held, of %v, and %d waiting at the end, want none", s.held, s.of, len(s.waiting))
		}
	})
}

// TestTheOnlyFileOfANamespaceIsSent: there is room for two of three namespaces with a file each, which take longer than
// patience. Each is sent whole, in turn.
func TestTheOnlyFileOfANamespaceIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSendings(100)
		ended := make(chan error, 3)
		for _, ns := range []sandboxmcp.Namespace{"a", "b", "c"} {
			go func() {
				d, _, err := s.begin(t.Context(), ns, 50, httptest.NewRecorder())
				if err != nil {
					ended <- err
					return
				}
				defer d.end()
				for range 4 * patience / stallGrace { // the client takes its pieces
					if err = d.piece(); err != nil {
						break
					}
					<-time.NewTimer(stallGrace / 2).C
				}
				ended <- err
			}()
		}
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Errorf("the only file of a namespace: got %v, want it sent", err)
			}
		}
	})
}

// TestNamespacesOfOneKeyHoldNoRoomForLong: two namespaces have one file each, whose clients receive pieces without end. A file
// of a third namespace waits at most for onlyPatience.
func TestNamespacesOfOneKeyHoldNoRoomForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSendings(100)
		ended, over := make(chan time.Duration, 2), make(chan struct{})
		began := time.Now()
		for _, ns := range []sandboxmcp.Namespace{"a", "b"} {
			d, _, err := s.begin(t.Context(), ns, 50, httptest.NewRecorder())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer func() { d.end(); ended <- time.Since(began) }()
				for d.piece() == nil {
					select {
					case <-over:
						return
					case <-time.NewTimer(stallGrace / 2).C:
					}
				}
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*onlyPatience)
		defer cancel()
		d, _, err := s.begin(ctx, "other", 50, httptest.NewRecorder())
		if err != nil {
			t.Errorf("the file of another namespace: got %v, want it sent", err)
		} else {
			d.end()
			if got := <-ended; got < onlyPatience {
				t.Errorf("an only file was ended after %v, want %v", got, onlyPatience)
			}
		}
		close(over)
		synctest.Wait()
		large := &sending{bytes: 1000 * onlyRate}
		if got := large.lastLocked().Sub(large.since); got != 1000*time.Second {
			t.Errorf("a large only file: got %v, want 1000 s", got)
		}
	})
}
