package server

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStalledClientMakesRoom: a client that takes nothing is cut off for another that
// waits. A client that takes its pieces is not.
func TestAStalledClientMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSendings(100)
		begin := func(bytes int64) *sending {
			t.Helper()
			d, err := s.begin(t.Context(), bytes, httptest.NewRecorder())
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
	d, err := s.begin(t.Context(), 10, httptest.NewRecorder())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.begin(ctx, 1, httptest.NewRecorder()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	d.end()
	large, err := s.begin(t.Context(), 1000, httptest.NewRecorder()) // larger than all room: alone
	if err != nil {
		t.Fatal(err)
	}
	large.end()
}
