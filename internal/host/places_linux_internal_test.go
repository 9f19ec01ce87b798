package host

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoCommandWaitsForAFIFOOfAUser: a user can make a FIFO where programs have a directory with settings. An open that waits for its writer
// waits for ever.
func TestNoCommandWaitsForAFIFOOfAUser(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := unix.Mkfifo(filepath.Join(home, ".config"), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(closedPlaces(nil)) == 0 {
		t.Error("got no closed places")
	}
}
