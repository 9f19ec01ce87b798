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
