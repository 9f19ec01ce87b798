package watch

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestAttackLockedProcessesDoNotBlindTheWatch: a program can hold the lock under which the kernel
// adds up the memory of a process. Such a process counts with all of its resident memory, and the
// sum is there soon.
func TestAttackLockedProcessesDoNotBlindTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locked, honest, resident, pss = 20, 3, 8 << 20, 1 << 20
		var e exact
		free := make(chan struct{})
		var all []string
		for i := range locked + honest {
			all = append(all, strconv.Itoa(i))
		}
		open := func(p string) (int64, func() string) {
			return resident, func() string {
				if i, _ := strconv.Atoi(p); i < locked {
					<-free
				}
				return fmt.Sprintf("a header\nRss: 9 kB\nPss: %d kB\n", pss>>10)
			}
		}
		check := func(when string, want int64, within time.Duration) {
			t.Helper()
			began := time.Now()
			if got, sure := e.sum(all, open); got != want || sure != (when == "free again") {
				t.Errorf("%s: got a sum of %d bytes, sure %v, want %d", when, got, sure, want)
			}
			if took := time.Since(began); took > within {
				t.Errorf("%s: the sum took %v, want at most %v", when, took, within)
			}
		}
		check("locked", locked*resident+honest*pss, 400*time.Millisecond)
		check("locked still", locked*resident+honest*pss, 0)
		close(free)
		e.reads.Wait()
		check("free again", (locked+honest)*pss, 0)
	})
}

// TestAttackAKillDoesNotWaitForTheWatch: a look that waits for a lock of a program ends only when the
// program is dead, so what comes before the kill may not wait for the look.
func TestAttackAKillDoesNotWaitForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Group{quit: make(chan struct{}), done: make(chan struct{})}
		dead, stopped := make(chan struct{}), make(chan struct{})
		w.exact.reads.Go(func() { <-dead })
		go func() {
			defer close(w.done)
			defer w.exact.reads.Wait()
			<-w.quit
		}()
		w.Quit() // would block for ever if it waited
		go func() { w.Stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Stop: got an end while a reading was under way, want it to wait")
		default:
		}
		close(dead) // the kill
		<-stopped
	})
}
