package process

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that holds a lease on its file makes each opening fail for as long as
// the kernel lets it: the server tries a few times and goes on.
func TestALookUpThatAlwaysFailsIsGivenUp(t *testing.T) {
	signal.Ignore(syscall.SIGIO) // the kernel asks the holder to give the lease up
	t.Cleanup(func() { signal.Reset(syscall.SIGIO) })
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "leased"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(filepath.Join(root, "leased"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if f, err := (files{dir: dir}).Open("leased"); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v and %v, want EAGAIN", f, err)
	}
}
