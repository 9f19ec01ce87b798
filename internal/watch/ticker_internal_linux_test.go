package watch

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTickerTicks: a ticker ticks again and again, at once when it is told to, and also
// where the kernel has no timer for it.
func TestTickerTicks(t *testing.T) {
	for name, c := range map[string]struct {
		ticker *ticker
		soon   bool
	}{
		"of the kernel": {newTicker(time.Millisecond), false},
		"soon":          {newTicker(time.Hour), true},
		"without":       {&ticker{every: time.Millisecond}, false},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.ticker.close()
			if name != "without" && c.ticker.file == nil {
				t.Fatal("got no timer of the kernel")
			}
			done := make(chan struct{})
			c.ticker.start()
			go func() {
				defer close(done)
				for range 3 {
					if c.soon {
						c.ticker.soon()
					}
					c.ticker.wait()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			select {
			case <-done:
			case <-ctx.Done():
				t.Fatal("got no three ticks in a minute")
			}
		})
	}
}

// TestStoppedWatchEnds: Stop ends the watch without waiting for a tick, and what is added
// afterwards does not start it again.
func TestStoppedWatchEnds(t *testing.T) {
	o := NewObjects(0)
	gone := &Target{Plain: true, Hold: func() (func(), error) { return nil, os.ErrClosed }}
	o.Add(gone)
	o.Stop()
	o.Wait()
	o.Add(gone)
	o.Short()
	o.Wait()
	if o.ticker != nil {
		t.Error("got a watch that runs, want none after Stop")
	}
}

// TestWatchRests: the timer of a watch is set while it has a target, and not before or after.
func TestWatchRests(t *testing.T) {
	o := NewObjects(0)
	defer o.Wait()
	defer o.Stop()
	set := func() bool {
		t.Helper()
		raw, err := o.ticker.file.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		_ = raw.Control(func(fd uintptr) { text, err = os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(fd))) })
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(string(text), "it_value: (0, 0)")
	}
	gone := func() (func(), error) { return nil, os.ErrClosed }
	targets := []*Target{{Plain: true, Hold: gone}, {Plain: true, Hold: gone}}
	for range 3 {
		for _, s := range targets {
			o.Add(s)
		}
		o.Remove(targets[0])
		if !set() {
			t.Error("got a timer at rest beside a target, want it set")
		}
		o.Remove(targets[1])
		if set() {
			t.Error("got a timer that is set without a target, want it at rest")
		}
	}
}
