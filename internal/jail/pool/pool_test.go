package pool_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// log records which values were dropped.
type log struct {
	mu   sync.Mutex
	gone []int
}

func (l *log) drop(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, n)
	return nil
}

func (l *log) want(t *testing.T, when string, want ...int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(append([]int{}, want...), append([]int{}, l.gone...)); diff != "" {
		t.Errorf("dropped %s (-want +got):\n%s", when, diff)
	}
}

func reuse(l *log) *pool.Pool[string, int] {
	return pool.New(pool.Policy[string, int]{Total: 2, Idle: time.Minute, Drop: l.drop})
}

func wantTake(t *testing.T, p *pool.Pool[string, int], key string, want int) {
	t.Helper()
	got, ok := p.Take(key, nil)
	if ok != (want != 0) || got != want {
		t.Errorf("Take(%q): got %d, %t, want %d", key, got, ok, want)
	}
}

// step lets fake time pass, and what it starts.
func step(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestBoundedAndLastFirst(t *testing.T) {
	var l log
	p := reuse(&l)
	got := []bool{p.Put("a", 1), p.Put("a", 2), p.Put("a", 3), p.Put("b", 4)}
	if diff := cmp.Diff([]bool{true, true, false, false}, got); diff != "" {
		t.Errorf("Put (-want +got):\n%s", diff)
	}
	wantTake(t, p, "b", 0)
	wantTake(t, p, "a", 2)
	wantTake(t, p, "a", 1)
	wantTake(t, p, "a", 0)
	l.want(t, "after Take")
}

func TestDroppedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		p := reuse(&l)
		p.Put("a", 1)
		step(40 * time.Second)
		p.Put("b", 2)
		step(21 * time.Second)
		l.want(t, "after 61 and 21 s", 1)
		step(40 * time.Second)
		l.want(t, "after 61 s more", 1, 2)
		if n := p.Len(); n != 0 {
			t.Errorf("got %d values left, want 0", n)
		}
		p.Put("a", 3) // the timer runs again
		step(59 * time.Second)
		if n := p.Len(); n != 1 {
			t.Errorf("got %d values after 59 s, want 1", n)
		}
		wantTake(t, p, "a", 3)
		step(time.Hour)
		l.want(t, "after a value was taken", 1, 2)
	})
}

func TestClose(t *testing.T) {
	fault := errors.New("no")
	dropped := 0
	p := pool.New(pool.Policy[string, int]{Total: 2, Drop: func(int) error { dropped++; return fault }})
	p.Put("a", 1)
	p.Put("b", 2)
	if err := p.Close(); !errors.Is(err, fault) {
		t.Errorf("Close: got %v, want the error of Drop", err)
	}
	if err := p.Close(); err != nil || dropped != 2 {
		t.Errorf("the second Close: got %v with %d dropped, want nil with 2", err, dropped)
	}
	_, shared := p.Share("a", func() int { return 3 })
	if p.Put("a", 3) || shared || p.Len() != 0 {
		t.Error("a closed pool took a value")
	}
}

func TestNil(t *testing.T) {
	var p *pool.Pool[string, int]
	wantTake(t, p, "a", 0)
	_, shared := p.Share("a", func() int { return 1 })
	_, peeked := p.Peek("a")
	if p.Put("a", 1) || shared || peeked || p.Len() != 0 || p.Evict() {
		t.Error("a nil pool had something")
	}
	p.Done("a")
	p.Expect("a", nil)
	p.Fill()
	p.Count(nil)
	if err := errors.Join(p.DropIf(func(int) bool { return true }), p.Empty(), p.Close()); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// TestShared: a value stays while it is shared, and its age counts from the last Share.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		p, made := reuse(&l), 0
		share := func(key string) (int, bool) { return p.Share(key, func() int { made++; return made }) }
		share("a")
		step(50 * time.Second)
		if v, ok := share("a"); v != 1 || !ok {
			t.Errorf("Share: got %d, %t, want 1", v, ok)
		}
		step(30 * time.Second)
		p.Peek("a")
		share("b")
		if v, ok := share("c"); ok {
			t.Errorf("Share in a full pool: got %d, want none", v)
		}
		step(31 * time.Second)
		l.want(t, "61 s after the last Share", 1)
		if v, ok := p.Peek("b"); v != 2 || !ok {
			t.Errorf("Peek: got %d, %t, want 2", v, ok)
		}
		if _, ok := p.Peek("a"); ok {
			t.Error("Peek found a value that was dropped")
		}
	})
}

func TestCosts(t *testing.T) {
	var l log
	p := pool.New(pool.Policy[string, int]{Total: 3, Drop: l.drop, Cost: func(n int, counts map[string]int) { counts["values"]++; counts["sum"] += n }})
	p.Put("a", 1)
	p.Put("a", 2)
	p.Put("b", 4)
	got := map[string]int{"other": 1}
	p.Count(got)
	if diff := cmp.Diff(map[string]int{"values": 3, "sum": 7, "other": 1}, got); diff != "" {
		t.Errorf("Count (-want +got):\n%s", diff)
	}
	if err := p.DropIf(func(n int) bool { return n != 2 }); err != nil {
		t.Error(err)
	}
	wantTake(t, p, "b", 0)
	wantTake(t, p, "a", 2)
	if !p.Put("c", 5) || !p.Put("c", 6) || !p.Put("c", 7) || p.Len() != 3 {
		t.Error("values that were dropped still count")
	}
}

func TestDeadAreDropped(t *testing.T) {
	var l log
	var from atomic.Int64
	from.Store(100)
	p := pool.New(pool.Policy[string, int]{Total: 9, Drop: l.drop, Dead: func(n int) bool { return int64(n) >= from.Load() }})
	if p.Put("a", 100) {
		t.Error("Put kept a dead value")
	}
	for n := range 4 {
		p.Put("a", n+1)
	}
	from.Store(3)
	wantTake(t, p, "a", 2)
	l.want(t, "by Take", 4, 3)
}

func TestEvictsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		p := pool.New(pool.Policy[string, int]{Total: 9, Idle: time.Minute, Drop: l.drop})
		for n, key := range []string{"a", "b", "a"} {
			p.Put(key, n+1)
			step(time.Second)
		}
		for p.Evict() {
			continue
		}
		l.want(t, "by Evict", 1, 2, 3)
	})
}

// TestConcurrent is for the race detector: every value that is made is dropped once.
func TestConcurrent(t *testing.T) {
	var made, dropped atomic.Int64
	p := pool.New(pool.Policy[int, int64]{
		Total: 5, Idle: time.Millisecond, Window: time.Millisecond, Keys: 3, Want: func(_, peak int) int { return peak + 1 },
		Drop: func(int64) error { dropped.Add(1); return nil },
		Cost: func(_ int64, counts map[string]int) { counts["values"]++ },
	})
	build := func() (int64, bool) { return made.Add(1), true }
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; n < 500 || made.Load() == 0 && n < 1_000_000; n++ { // values are made beside, when there is time
				key := (i + n) % 4
				if _, ok := p.Take(key, build); ok {
					dropped.Add(1)
				}
				p.Expect(key, build)
				p.Count(map[string]int{})
				if n%100 == 0 {
					_ = p.Empty()
				}
				p.Evict()
				p.Done(key)
				p.Fill()
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got, want := dropped.Load(), made.Load(); got != want || want == 0 {
		t.Errorf("got %d values dropped or given out, want %d", got, want)
	}
}
