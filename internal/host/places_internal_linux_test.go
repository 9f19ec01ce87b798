package host

import (
	"errors"
	"os"
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
	if len(closedPlaces(newBudget(anyTime, maxLooked), nil)) == 0 {
		t.Error("got no closed places")
	}
}

// TestFileToolsWaitForNoFIFO: a user who can write to a directory of host_roots can put a FIFO in the place of a directory, between the look at
// it and the open.
func TestFileToolsWaitForNoFIFO(t *testing.T) {
	path := t.TempDir()
	shared, other := filepath.Join(path, "shared"), filepath.Join(path, "other")
	if err := errors.Join(os.Mkdir(shared, 0o755), unix.Mkfifo(other, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, shared, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); errors.Is(err, unix.EINVAL) {
		t.Skip("the file system exchanges no names")
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, shared, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 5000 {
		if dir, err := step(root, "shared"); err == nil {
			_ = dir.Close()
		}
	}
	close(stop)
	<-stopped
}

// TestNoCommandOpensADeviceOfAUserLink: a user can make a link to a device where programs have a directory with settings. A watchdog that
// was opened restarts the machine.
func TestNoCommandOpensADeviceOfAUserLink(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	device := filepath.Join(home, "device") // a file stands for it
	if err := errors.Join(os.WriteFile(device, nil, 0o600), os.Symlink(device, filepath.Join(home, ".config"))); err != nil {
		t.Fatal(err)
	}
	events, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(events) }()
	if _, err := unix.InotifyAddWatch(events, device, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	closedPlaces(newBudget(anyTime, maxLooked), nil)
	if n, err := unix.Read(events, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %d bytes of events, %v, want that it was not opened", n, err)
	}
}

// TestNoFileOfTheKernelIsRead: a user can make a link .git to trace_pipe, or name it as the interpreter of a script. A read of trace_pipe
// waits for ever, so this test uses /proc/version instead.
func TestNoFileOfTheKernelIsRead(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "package.json")
	if err := os.Symlink("/proc/version", link); err != nil {
		t.Fatal(err)
	}
	if got := newBudget(anyTime, maxLooked).read(link, maxPackage); got != "" {
		t.Errorf("got %q, want nothing of the kernel", got)
	}
	if f, err := openPlain(link); err == nil {
		t.Error("got that a file of a program may be one of the kernel", f.Close())
	}
	if err := errors.Join(os.Remove(link), os.WriteFile(link, []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b := newBudget(anyTime, maxLooked)
	if got, cut := b.read(link, 2), b.read(link, 1); got != "{}" || cut != "" {
		t.Errorf("got %q and %q, want all of a file, and nothing of one that is too large", got, cut)
	}
}
