package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSweepPlainSparesTheLiving(t *testing.T) {
	tmp := t.TempDir()
	dir := func(name string) string {
		d := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Join(d, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		return d
	}
	young, other := dir(plainPrefix+"young"), dir("sandboxmcp-notes")
	lock, err := claim(dir(plainPrefix + "mine"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if again, err := claim(lock.Name()); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("a second claim: %v %v, want EAGAIN", again, err)
	}
	sweepPlain(tmp)
	for _, d := range []string{young, other, lock.Name()} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("%s: got it swept, want it kept", filepath.Base(d))
		}
	}
	if sweepable(young, time.Now()) || !sweepable(young, time.Now().Add(2*time.Minute)) {
		t.Error("a new directory: got another answer, want it swept only after a minute")
	}
	if sweepable(lock.Name()+"/data", time.Now().Add(2*time.Minute)) != true {
		t.Error("an unlocked directory of ours: got it kept, want it swept")
	}
}

// TestRemoveTreeOfAHostileProgram: directories that are nested deeper than the server may open files are
// removed, and those without permissions, and each takes the same time.
func TestRemoveTreeOfAHostileProgram(t *testing.T) {
	const depth = 3000
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(t.TempDir(), "root"), filepath.Join(t.TempDir(), "kept")
	if err := errors.Join(os.Mkdir(root, 0o700), os.WriteFile(outside, nil, 0o600), os.Symlink(filepath.Dir(outside), filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, ".moved-1", "full", "f"), 0o700), os.WriteFile(filepath.Join(root, ".moved-2"), nil, 0o600)); err != nil { // names that removeTree uses
		t.Fatal(err)
	}
	at, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < depth && err == nil; i++ {
		above := at
		if err = unix.Mkdirat(above, "d", 0o700); err == nil {
			at, err = unix.Openat(above, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(above)
	}
	if err = errors.Join(err, unix.Mkdirat(at, "closed", 0o700), unix.Mkdirat(at, "closed/inner", 0), unix.Fchmodat(at, "closed", 0, 0), unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	few := most
	few.Cur = 256
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = removeTree(root)
	if bad := unix.Setrlimit(unix.RLIMIT_NOFILE, &most); bad != nil {
		t.Fatal(bad)
	}
	if _, left := os.Stat(root); err != nil || !errors.Is(left, os.ErrNotExist) {
		t.Errorf("got %.200v and %v, want the directory removed", err, left)
	}
	if _, err = os.Stat(outside); err != nil {
		t.Errorf("behind a link: got %v, want the file kept", err)
	}
}
