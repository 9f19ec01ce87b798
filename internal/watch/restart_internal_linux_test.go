package watch

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRestartKeepsNoUnusedShare: a sandbox that has waited for a minute may not use half a minute of a processor at once.
func TestRestartKeepsNoUnusedShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cores, used = 0.5, 100 * time.Millisecond
		w := &Group{limits: Limits{Cores: cores}, free: true, began: time.Now()}
		time.Sleep(time.Minute) // of the bubble's clock
		allowed := func() time.Duration { return time.Duration(cores * float64(time.Since(w.began))) }
		if w.share(used); allowed() != time.Minute/2 {
			t.Errorf("while it waits: got %v of a processor, want %v", allowed(), time.Minute/2)
		}
		w.Restart(0)
		if w.share(used); allowed() != used {
			t.Errorf("when its program comes: got %v of a processor, want the %v that it has used", allowed(), used)
		}
		time.Sleep(time.Second)
		if w.share(used); allowed() != used+time.Second/2 {
			t.Errorf("a second later: got %v of a processor, want %v", allowed(), used+time.Second/2)
		}
	})
}
