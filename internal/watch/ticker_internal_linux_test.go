package watch

import (
	"context"
	"os"
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
