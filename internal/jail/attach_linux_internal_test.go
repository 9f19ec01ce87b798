package jail

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCloseWaitsForAnAttachThatGivesItsSpawnerBack: an Attach that is under way when the jail is closed can end.
func TestCloseWaitsForAnAttachThatGivesItsSpawnerBack(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	j.gallery.mu.Lock() // as an Attach does
	closed := make(chan error, 1)
	go func() { closed <- j.Close() }()
	<-j.done
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if j.mu.TryLock() {
			gone := j.gone
			j.mu.Unlock()
			if gone { // Close goes on to the gallery
				break
			}
		}
	}
	spawner, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	given := make(chan struct{})
	go func() {
		j.giveBack(spawner)
		close(given)
	}()
	select {
	case <-given:
	case <-time.NewTimer(10 * time.Second).C:
		t.Error("the spawner cannot be given back")
	}
	j.gallery.mu.Unlock()
	if err = <-closed; err != nil {
		t.Error(err)
	}
}
