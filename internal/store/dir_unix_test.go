//go:build linux

package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// as runs f with the rights of uid, on a thread that ends with the test.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		const keep = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestOpenWithoutRights(t *testing.T) {
	const nobody = 65534
	me := os.Geteuid()
	if me == 0 {
		me = nobody // root may do everything
	}
	tests := []struct {
		name    string
		dir     func(t *testing.T) string
		message string
	}{
		{"read-only", func(t *testing.T) string {
			dir := t.TempDir()
			if os.Geteuid() == 0 {
				if err := os.Chown(dir, me, -1); err != nil {
					t.Fatal(err)
				}
			}
			// The directory above is root's alone otherwise.
			for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o711, dir: 0o500} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
			return dir
		}, "permission denied"},
		{"of another user", func(*testing.T) string { return "/usr" }, "it belongs to another user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.dir(t)
			if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
				t.Fatal(err)
			}
			var err error
			as(t, me, func() {
				if _, err = os.Stat(dir); err == nil { // the refusal is to come from nowhere else
					_, err = store.Open(t.Context(), store.Config{Dir: dir})
				}
			})
			var e *sandboxmcp.Error
			if !errors.As(err, &e) || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, tt.message) || !strings.Contains(e.Message, dir) {
				t.Fatalf("got %v, want backend_unavailable with %q", err, tt.message)
			}
			if !strings.Contains(e.Hint, "SANDBOXMCP_STATE_DIR") {
				t.Errorf("hint: got %q", e.Hint)
			}
		})
	}
}

// TestOpenRefusesPlantedFiles: in a directory that others could write to, another user may
// have left a database, and hold a descriptor of it.
func TestOpenRefusesPlantedFiles(t *testing.T) {
	testkit.Need(t, "root", os.Geteuid() == 0, "makes files of another user")
	for _, name := range []string{"sandboxmcp.db", "signing.key", "runtimes.json"} {
		dir := t.TempDir()
		newState(t, dir)
		touch(t, filepath.Join(dir, name), "")
		if err := errors.Join(os.Chown(filepath.Join(dir, name), 65534, -1), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), store.Config{Dir: dir})
		if err == nil {
			s.Close()
		}
		if e := sandboxmcp.AsError(err); err == nil || !strings.Contains(e.Message, name+`" of another user`) || !strings.Contains(e.Hint, "SANDBOXMCP_STATE_DIR") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o777 {
			t.Errorf("%s: got %v, %v, want an unchanged directory", name, fi, err)
		}
	}
}
