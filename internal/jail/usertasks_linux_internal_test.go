package jail

import (
	"testing"
	"time"
)

// TestNoLoweredLimitIsRead: what reads the limits of the server's user while a sandbox is forked gets
// them as they are otherwise.
func TestNoLoweredLimitIsRead(t *testing.T) {
	for name, read := range map[string]func() int{"tasks": UserTasks, "signals": userSignals} {
		t.Run(name, func(t *testing.T) {
			want := read()
			if want == 0 {
				t.Skip("they are not limited for this user")
			}
			got := make(chan int, 1)
			err := belowUser(func() error {
				go func() { got <- read() }()
				timer := time.NewTimer(100 * time.Millisecond) // long enough for a reader that does not wait
				defer timer.Stop()
				select {
				case n := <-got: // it did not wait
					got <- n
				case <-timer.C:
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := <-got; n != want {
				t.Errorf("got %d during a fork, want %d", n, want)
			}
		})
	}
}
