package door_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/door"
)

// TestLocalKey: it is made once, also if several servers start, and only its owner can read it.
func TestLocalKey(t *testing.T) {
	dir := t.TempDir()
	keys := make([]string, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, _, err := door.LocalKey(dir)
			if err != nil {
				t.Error(err)
			}
			keys[i] = k.Reveal()
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] || len(k) < 40 {
			t.Errorf("got %q and %q, want one long key", k, keys[0])
		}
	}
	path := filepath.Join(dir, door.KeyFile)
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v and %v, want 0600", st.Mode(), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("got %v and %v, want one file", all, err)
	}
	if err = os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err = door.LocalKey(dir); err == nil {
		t.Error("got a key that others can read, want an error")
	}
	for name, text := range map[string]string{"empty": "", "short": "abc\n", "two words": "aaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbb\n"} {
		if err = os.Remove(path); err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = door.LocalKey(dir); err == nil {
			t.Errorf("%s: got a key, want an error", name)
		}
	}
	if err = os.Remove(path); err == nil {
		err = os.Symlink("/etc/hostname", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = door.LocalKey(dir); err == nil {
		t.Error("a link: got a key, want an error")
	}
}
