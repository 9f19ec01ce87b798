package relay

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
)

// TestASlowEndLiftsTheLimit: if killed programs do not end soon, the processor limit is lifted after they were killed.
// Clear sets it again once they have ended. Kill does not.
func TestASlowEndLiftsTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		kill bool
		want []string
	}{
		"clear": {want: []string{"killed", "lifted", "restored"}},
		"kill":  {kill: true, want: []string{"killed", "lifted"}},
	} {
		var mu sync.Mutex
		var steps []string
		step := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, text)
		}
		lifted, lift := make(chan struct{}), sync.Once{}
		s, _ := openFake(t, func(p packet) *reported {
			if p.kind != 'C' {
				return nil
			}
			step("killed")
			<-lifted // programs end only then
			return nil
		})
		s.quota.raise = func() func() error {
			step("lifted")
			lift.Do(func() { close(lifted) })
			return func() error { step("restored"); return nil }
		}
		end := s.Clear
		if c.kill {
			end = s.Kill
		}
		err := end(t.Context())
		mu.Lock()
		got := slices.Clone(steps)
		mu.Unlock()
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q %v, want %q", name, got, err, c.want)
		}
	}
}

// TestALateSignalLiftsTheLimit: while the relay is late to send a signal, the limit is lifted. If it cannot be set again,
// the sandbox has ended.
func TestALateSignalLiftsTheLimit(t *testing.T) {
	for name, failed := range map[string]error{"restored": nil, "not restored": errors.New("none")} {
		lifted, lift := make(chan struct{}), sync.Once{}
		restored := make(chan struct{}, 1)
		s, _ := openFake(t, func(p packet) *reported {
			if p.kind == 'Y' && len(p.calls) == 1 && p.first[0] == 4711 {
				<-lifted
			}
			return nil
		})
		s.quota.raise = func() func() error {
			lift.Do(func() { close(lifted) })
			return func() error { restored <- struct{}{}; return failed }
		}
		r := &running{s: s, pid: 4711, done: make(chan struct{})}
		err := r.Signal(t.Context(), sigINT)
		select {
		case <-restored:
		default:
			t.Errorf("%s: the limit was not restored", name)
		}
		s.quota.raise = nil
		if gone := errors.Is(s.live(), os.ErrClosed); gone != (failed != nil) || (err == nil) != (failed == nil) {
			t.Errorf("%s: got %v, and that the sandbox has ended: %t", name, err, gone)
		}
	}
}

// TestALimitIsRestoredOnce: it is lifted by the first and restored after the last of those that need it.
func TestALimitIsRestoredOnce(t *testing.T) {
	var steps []string
	q := quota{raise: func() func() error {
		steps = append(steps, "lifted")
		return func() error { steps = append(steps, "restored"); return nil }
	}}
	q.lift()
	q.lift()
	_ = q.restore()
	steps = append(steps, "one left")
	_ = q.restore()
	if want := []string{"lifted", "one left", "restored"}; !slices.Equal(steps, want) {
		t.Errorf("got %q, want %q", steps, want)
	}
}
