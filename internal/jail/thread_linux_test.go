package jail_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// TestAThreadUsesNothingBehindALink: a rule names the place that was judged. A link that came on its way afterwards leads elsewhere.
func TestAThreadUsesNothingBehindALink(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/own", "/behind/dir"} {
		if err := errors.Join(os.MkdirAll(top+dir, 0o755), os.WriteFile(top+dir+"/f", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(top+"/behind", top+"/link"); err != nil {
		t.Fatal(err)
	}
	rules, err := jail.ThreadRules([]jail.ThreadRule{{Path: top + "/own", Read: true}, {Path: top + "/link/dir", Read: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer rules.Close()
	var own, behind error
	var walls []string
	onOwnThread(func() {
		if walls, err = jail.ConfineThread(rules); err != nil {
			return
		}
		open := func(path string) error {
			fd, failed := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if failed == nil {
				failed = unix.Close(fd)
			}
			return failed
		}
		own, behind = open(top+"/own/f"), open(top+"/behind/dir/f")
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(walls) < 2 {
		t.Skip("no Landlock")
	}
	if own != nil || !errors.Is(behind, unix.EACCES) {
		t.Errorf("got %v and %v, want that only what is behind the link is refused", own, behind)
	}
}

// TestAThreadIsNotConfinedUnobserved: a thread whose process can open no more files has Landlock's rules, but that cannot be observed. So it is not taken
// for one on a kernel without Landlock, whose programs need not be kept apart from it.
func TestAThreadIsNotConfinedUnobserved(t *testing.T) { // not parallel: no test can open a file meanwhile
	rules, err := jail.ThreadRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	if rules == nil {
		t.Skip("no Landlock")
	}
	defer rules.Close()
	var old unix.Rlimit
	if err = unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	var walls []string
	onOwnThread(func() {
		if err = unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: old.Max}, nil); err == nil {
			walls, err = jail.ConfineThread(rules)
		}
	})
	if failed := unix.Prlimit(0, unix.RLIMIT_NOFILE, &old, nil); failed != nil {
		t.Fatal(failed)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %q, %v, want that there are too many open files", walls, err)
	}
}

// onOwnThread calls f on a thread that ends afterwards, and is not the main one.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}
