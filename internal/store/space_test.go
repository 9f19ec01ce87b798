package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

func TestLittleFreeSpaceIsRefusedByPath(t *testing.T) {
	const mib = 1 << 20
	for what, tt := range map[string]struct {
		free, total uint64
		err         error
		want        sandboxmcp.Code
	}{
		"enough":                {free: 300 * mib, total: 4000 * mib},
		"less than 256 MiB":     {free: 256*mib - 1, total: 1000 * mib, want: sandboxmcp.CodeBackendUnavailable},
		"less than 5 %":         {free: 499 * mib, total: 10000 * mib, want: sandboxmcp.CodeBackendUnavailable},
		"exactly both":          {free: 256 * mib, total: 20 * 256 * mib},
		"it cannot be told":     {err: errors.New("no statfs")},
		"a file system of none": {want: sandboxmcp.CodeBackendUnavailable},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		s, err := store.Open(t.Context(), store.Config{Dir: dir, Free: func(string) (uint64, uint64, error) { return tt.free, tt.total, tt.err }})
		if err != nil {
			t.Fatal(err)
		}
		err = s.CheckSpace()
		if got := sandboxmcp.CodeOf(err); err != nil && got != tt.want || err == nil && tt.want != "" || err != nil && !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want the code %q and the path %s", what, err, tt.want, dir)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The database may be on another disk than the directory.
func TestFreeSpaceIsLookedForOnceASecondInBothPlaces(t *testing.T) {
	now := time.Unix(1e9, 0)
	dir, elsewhere := filepath.Join(t.TempDir(), "state"), t.TempDir()
	full, asked := "", 0
	s, err := store.Open(t.Context(), store.Config{
		Dir: dir, SQLitePath: filepath.Join(elsewhere, "x.db"), Now: func() time.Time { return now },
		Free: func(d string) (uint64, uint64, error) {
			asked++
			if d == full {
				return 0, 1 << 40, nil
			}
			return 1 << 39, 1 << 40, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 100 {
		if err := s.CheckSpace(); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 2 {
		t.Errorf("got %d questions to the kernel, want one for each of two directories", asked)
	}
	for _, full = range []string{dir, elsewhere} {
		now = now.Add(time.Second)
		if err := s.CheckSpace(); err == nil || !strings.Contains(err.Error(), full) {
			t.Errorf("got %v, want an error that names %s", err, full)
		}
	}
	full = ""
	if err := s.CheckSpace(); err == nil {
		t.Error("got no error within the same second, want the one that was found")
	}
	now = now.Add(time.Second)
	if err := s.CheckSpace(); err != nil {
		t.Errorf("got %v after space was freed, want none", err)
	}
}

// TestTempFilesHaveNoName: a temporary file can be written and read, has no name, and is refused
// if its content would leave too little space.
func TestTempFilesHaveNoName(t *testing.T) {
	const mib = 1 << 20
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Free: func(string) (uint64, uint64, error) { return 300 * mib, 1000 * mib, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := s.Temp(44 * mib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err = f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err = f.ReadAt(got, 0); err != nil || string(got) != "text" {
		t.Errorf("got %q and %v, want what was written", got, err)
	}
	if _, err := os.Stat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for its name, want that there is none", err)
	}
	_, err = s.Temp(45 * mib)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable || !strings.Contains(err.Error(), dir) {
		t.Errorf("45 MiB where 44 fit: got %v, want %s with the path", err, sandboxmcp.CodeBackendUnavailable)
	}
}
