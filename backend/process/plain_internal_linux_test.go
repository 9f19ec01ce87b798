package process

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestSweepPlainSparesTheLiving(t *testing.T) {
	tmp := t.TempDir()
	mine := filepath.Join(tmp, plainPrefix+strconv.Itoa(os.Getpid())+"-1")
	dead := filepath.Join(tmp, plainPrefix+"4194303-1") // above the largest process number there is by default
	other := filepath.Join(tmp, plainPrefix+"notes-1")
	for _, d := range []string{mine, dead, other} {
		if err := os.MkdirAll(filepath.Join(d, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweepPlain(tmp)
	for d, want := range map[string]bool{mine: true, dead: false, other: true} {
		if _, err := os.Stat(d); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", filepath.Base(d), err == nil, want)
		}
	}
}
