package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
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

// TestAListEndsWithItsContext: a program that keeps a directory from being read does not keep List.
func TestAListEndsWithItsContext(t *testing.T) {
	root := t.TempDir()
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	asks, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		t.Skipf("nothing can keep the directory from being opened here: %v", err)
	}
	if err := unix.FanotifyMark(asks, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_ONDIR, dir, ""); err != nil {
		t.Fatal(err)
	}
	s := &sandbox{slot: &jail.Slot{}, accesses: make(chan struct{}, 1)}
	s.slot.Dirs[jail.DirWork] = dir
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := (heldFiles{s}).List(ctx, ".", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	_ = unix.Close(asks) // lets the directory be opened
	s.use.shut()         // once the list was made
	_ = unix.Close(dir)
}

// TestOnlyRegularFilesAreOpened: a program can keep the opening of a pipe from its end.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	root := t.TempDir()
	pipe := filepath.Join(root, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	opened, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(opened)
	if _, err = unix.InotifyAddWatch(opened, pipe, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	if f, err := (files{dir: dir}).Open("pipe"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v and %v, want %v", f, err, fs.ErrInvalid)
	}
	var events [4096]byte
	if n, err := unix.Read(opened, events[:]); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the pipe was opened: %d bytes of events, %v", n, err)
	}
}

// TestWhatNobodyWaitsForIsDropped: a file that is opened after its caller has given up is closed.
func TestWhatNobodyWaitsForIsDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	kept, dropped := make(chan struct{}), make(chan int, 1)
	open := func(files) (int, error) {
		cancel()
		<-kept
		return 7, nil
	}
	if _, err := within(ctx, access{heldFiles{&sandbox{slot: &jail.Slot{}, accesses: make(chan struct{}, 1)}}, "open", "file", false}, open, func(n int) { dropped <- n }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	close(kept)
	if n := <-dropped; n != 7 {
		t.Errorf("got %d, want 7", n)
	}
}

// TestWaitingAccessesAreBounded: calls that their callers have given up, and that a program keeps from returning, do not
// take more and more threads of the server.
func TestWaitingAccessesAreBounded(t *testing.T) {
	s := &sandbox{slot: &jail.Slot{}, accesses: make(chan struct{}, maxAccesses)}
	kept := make(chan struct{})
	call := func(ctx context.Context, begun func()) error {
		_, err := within(ctx, access{heldFiles{s}, "stat", "file", false}, func(files) (int, error) {
			begun()
			<-kept
			return 0, nil
		}, func(int) {})
		return err
	}
	for range maxAccesses {
		ctx, cancel := context.WithCancel(t.Context())
		if err := call(ctx, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := call(ctx, func() { t.Error("one more call goes on") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	close(kept)
	for range maxAccesses {
		s.accesses <- struct{}{} // once all have returned
	}
}

// TestAChangeEndsWithItsContext: a program that keeps its directory locked does not keep an upload, a new directory or
// a new name beyond what the caller waits for.
func TestAChangeEndsWithItsContext(t *testing.T) {
	s := &sandbox{slot: &jail.Slot{}, accesses: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	err := heldFiles{s}.change(ctx, "mkdir", "sub", func(context.Context, files) error {
		cancel()
		<-kept
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	close(kept)
	s.accesses <- struct{}{}
}

// TestProgramsCanBeReadUnderAnyUmask: the modes of a program's files do not depend on the server's umask.
func TestProgramsCanBeReadUnderAnyUmask(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(dir) }()
	for exec, want := range map[bool]uint32{false: 0o644, true: 0o755} {
		old := unix.Umask(0o777)
		err = putFile(dir, backend.ProgramFile{Name: "main", Data: []byte("1"), Exec: exec})
		unix.Umask(old)
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstatat(dir, "main", &st, 0)
		}
		if err != nil || st.Mode&0o777 != want {
			t.Errorf("executable %t: got the mode %#o and %v, want %#o", exec, st.Mode&0o777, err, want)
		}
	}
}
