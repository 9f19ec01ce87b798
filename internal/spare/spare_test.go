package spare_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/spare"
)

func shelf(dropped *[]int) *spare.Shelf[int] {
	return spare.New(spare.Config[int]{Most: 2, Idle: time.Minute, Drop: func(n int) { *dropped = append(*dropped, n) }})
}

func TestBoundedAndLastFirst(t *testing.T) {
	var dropped []int
	s := shelf(&dropped)
	got := []bool{s.Put(1), s.Put(2), s.Put(3)}
	if diff := cmp.Diff([]bool{true, true, false}, got); diff != "" {
		t.Errorf("Put (-want +got):\n%s", diff)
	}
	for _, want := range []int{2, 1} {
		if it, ok := s.Take(); !ok || it != want {
			t.Errorf("Take = %d, %t, want %d", it, ok, want)
		}
	}
	if _, ok := s.Take(); ok {
		t.Error("Take of an empty pool: got something, want nothing")
	}
	if dropped != nil {
		t.Errorf("dropped: got %v, want none of what was given out or refused", dropped)
	}
}

func TestDroppedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped []int
		s := shelf(&dropped)
		step := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		s.Put(1)
		step(40 * time.Second)
		s.Put(2)
		step(21 * time.Second)
		if diff := cmp.Diff([]int{1}, dropped); diff != "" {
			t.Errorf("after 61 and 21 s (-want +got):\n%s", diff)
		}
		step(40 * time.Second)
		if diff := cmp.Diff([]int{1, 2}, dropped); diff != "" || s.Len() != 0 {
			t.Errorf("after 61 s more, %d left (-want +got):\n%s", s.Len(), diff)
		}
		s.Put(3) // the timer runs again
		step(59 * time.Second)
		if s.Len() != 1 {
			t.Error("got it dropped before its time, want it kept")
		}
		if it, ok := s.Take(); !ok || it != 3 {
			t.Errorf("Take = %d, %t, want 3", it, ok)
		}
		step(time.Hour)
		if diff := cmp.Diff([]int{1, 2}, dropped); diff != "" {
			t.Errorf("one that was given out was dropped (-want +got):\n%s", diff)
		}
	})
}

func TestClose(t *testing.T) {
	var dropped []int
	s := shelf(&dropped)
	s.Put(1)
	s.Put(2)
	s.Close()
	s.Close()
	if diff := cmp.Diff([]int{1, 2}, dropped); diff != "" {
		t.Errorf("dropped by Close (-want +got):\n%s", diff)
	}
	if s.Put(3) || s.Len() != 0 {
		t.Error("Put into a closed pool: got it taken, want it refused")
	}
}

func TestNone(t *testing.T) {
	var s *spare.Shelf[int]
	if _, ok := s.Take(); ok || s.Put(1) || s.Len() != 0 {
		t.Error("a nil pool: got something, want nothing")
	}
	s.Close()
}
