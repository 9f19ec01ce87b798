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
