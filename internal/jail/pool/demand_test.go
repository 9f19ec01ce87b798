package pool_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// factory builds numbered values for a pool that follows demand: as many as were in use at
// once, and one.
type factory struct {
	log
	*pool.Pool[string, int]
	made int
	fail bool
}

func newFactory(total int) *factory {
	f := &factory{}
	f.Pool = pool.New(pool.Policy[string, int]{
		Total: total, Idle: 5 * time.Minute, Drop: f.drop,
		Window: time.Minute, Keys: 2, Want: func(_ string, peak int) int { return peak + 1 },
	})
	return f
}

func (f *factory) build() (int, bool) {
	f.made++
	return f.made, !f.fail
}

// use takes n values at once and gives them back.
func (f *factory) use(n int, key string) (took int) {
	for range n {
		if _, ok := f.Take(key, f.build); ok {
			took++
		}
	}
	for range n {
		f.Done(key)
	}
	f.Fill()
	synctest.Wait()
	return took
}

func (f *factory) wantLen(t *testing.T, when string, want int) {
	t.Helper()
	if got := f.Len(); got != want {
		t.Errorf("%s: got %d values, want %d", when, got, want)
	}
}

func TestFollowsDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(9)
		f.use(1, "a")
		f.wantLen(t, "after one use", 0)
		if f.Put("a", 99) || f.Put("b", 99) {
			t.Error("Put kept a value without demand")
		}
		step(61 * time.Second)
		f.use(1, "a")
		f.wantLen(t, "after two uses in more than a window", 0)
		f.use(1, "a")
		f.wantLen(t, "after two uses in a window", 2)
		if took := f.use(3, "a"); took != 2 {
			t.Errorf("got %d of 3 values, want the 2 that were ready", took)
		}
		f.wantLen(t, "after three at once", 4)
		step(2*time.Minute + time.Second)
		f.use(1, "a")
		f.wantLen(t, "a use two windows later", 3)
		step(3 * time.Minute)
		f.wantLen(t, "when the surplus is dropped", 1)
		step(2 * time.Minute)
		f.wantLen(t, "when idle", 0)
		f.want(t, "by age", 3, 4, 5)
	})
}

func TestFillIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(3)
		f.use(2, "a")
		f.wantLen(t, "two at once", 3)
		step(time.Second)
		f.use(2, "b")
		f.wantLen(t, "a second key in a full pool", 3)
		for range 2 {
			f.use(1, "c")
		}
		if f.Evict(); f.Len() != 2 {
			t.Errorf("got %d values after Evict, want 2", f.Len())
		}
		f.use(2, "b")
		if took := f.use(1, "b"); took != 1 {
			t.Errorf("got %d values of a key that was asked for often, want 1", took)
		}
		if took := f.use(1, "c"); took != 0 {
			t.Errorf("got %d values of a key beyond those that are remembered, want 0", took)
		}
	})
}

// TestKeysAreForgotten: a key without values gives way to another one, unless it is in use
// or was asked for lately.
func TestKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(9)
		f.use(1, "a")
		f.Take("b", f.build)
		for range 2 {
			f.use(1, "c") // in place of a
		}
		f.wantLen(t, "a key in place of another", 2)
		for range 2 {
			f.use(1, "d")
		}
		f.wantLen(t, "a key with no place", 2)
		f.Done("b")
		for range 2 {
			f.use(1, "d")
		}
		f.wantLen(t, "a key in place of one that is done", 4)
	})
}

func TestFillEndsWithAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(9)
		f.fail = true
		f.use(1, "a")
		f.use(1, "a")
		if f.made != 1 {
			t.Errorf("got %d attempts, want 1", f.made)
		}
		f.Expect("a", func() (int, bool) { return 7, true })
		f.Fill()
		synctest.Wait()
		f.wantLen(t, "the next Fill", 2)
		wantTake(t, f.Pool, "a", 7)
	})
}

// TestFillDuringAFailure: Fill may be called because what the failing build lacks is there now. So one more build is tried.
func TestFillDuringAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(9)
		f.fail = true
		f.use(1, "a")
		f.use(1, "a")
		var builds int
		f.Expect("a", func() (int, bool) {
			if builds++; builds > 1 {
				return builds, true
			}
			f.Fill()
			return 0, false
		})
		f.Fill()
		synctest.Wait()
		f.wantLen(t, "Fill during a build that fails", 2)
	})
}

// TestEmptyWaitsForFill: a value that is being built is dropped too, and demand is forgotten. Fill
// may build a second one before Empty has its turn.
func TestEmptyWaitsForFill(t *testing.T) {
	f := newFactory(9)
	began, goOn := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	slow := func() (int, bool) { begin(); <-goOn; return f.build() }
	for range 2 {
		f.Take("a", slow)
		f.Done("a")
	}
	f.Fill()
	<-began
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	if err := f.Empty(); err != nil {
		t.Error(err)
	}
	made := f.made
	f.want(t, "by Empty", []int{1, 2}[:made]...)
	f.Fill()
	if f.wantLen(t, "after Empty", 0); f.made != made {
		t.Errorf("after Empty: got %d more values, want none", f.made-made)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestAnnouncedValueIsAwaited: the first demand waits for its value, which is not built twice. Nothing
// more is built until there is a second demand.
func TestAnnouncedValueIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(9)
		for range 2 {
			f.Announce("a", func() (int, bool) { time.Sleep(time.Second); return f.build() })
		}
		wantTake(t, f.Pool, "a", 1)
		f.Expect("a", f.build)
		f.Done("a")
		f.Fill()
		synctest.Wait()
		f.wantLen(t, "after the first demand", 0)
		f.use(1, "a")
		f.wantLen(t, "after the second demand", 2)
		if err := f.Empty(); err != nil {
			t.Error(err)
		}
	})
}

// TestAnnouncedValueIsDropped if no demand comes.
func TestAnnouncedValueIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(9)
		f.Announce("a", f.build)
		synctest.Wait()
		f.wantLen(t, "before its time", 1)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		f.wantLen(t, "after its time", 0)
		f.want(t, "by age", 1)
	})
}

// TestCloseWaitsForAnnounced: a value that is being built is dropped. One that fails is not.
func TestCloseWaitsForAnnounced(t *testing.T) {
	for name, want := range map[string][]int{"Built": {1}, "Failed": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFactory(9)
			f.fail = want == nil
			began, goOn := make(chan struct{}), make(chan struct{})
			f.Announce("a", func() (int, bool) { close(began); <-goOn; return f.build() })
			<-began
			time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			f.want(t, "by Close", want...)
			if f.Announce("b", f.build); f.made != 1 {
				t.Errorf("after Close: got %d values built, want 1", f.made)
			}
		})
	}
}
