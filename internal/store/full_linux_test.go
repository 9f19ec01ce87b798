package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// onSmallDisk runs the test again in a process that alone sees a small file system,
// and returns its directory there; where it returns none, that process was the test.
func onSmallDisk(t *testing.T, size string) string {
	t.Helper()
	testkit.Root(t)
	if dir := os.Getenv("SMALL_DISK"); dir != "" {
		if err := unix.Mount("small", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "SMALL_DISK="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("the test in its own mount namespace: got %v, want it passed\n%s", err, out)
	}
	return ""
}

// TestFullDiskAcknowledgesNobodyWrongly: the disk fills up under many writers, some of which
// fail by themselves, and has room again, several times. Each update that succeeded is there,
// and nothing of one that failed.
func TestFullDiskAcknowledgesNobodyWrongly(t *testing.T) {
	storetest.SQLite(t)
	disk := onSmallDisk(t, "3m")
	if disk == "" {
		return
	}
	dir := filepath.Join(disk, "state")
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	const writers, rounds = 8, 6
	var mu sync.Mutex
	told, refused := map[string]bool{}, 0
	for round := range rounds {
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range 40 {
					id := fmt.Sprintf("%d.%d.%d ", round, w, i)
					ops := []store.Op{addServer(id + strings.Repeat("x", 4000)), addServer(id + "twin")}
					switch i % 10 {
					case 3:
						ops = append(ops, func(context.Context, *sql.Tx) error { return errors.New("of its own") })
					case 7:
						ops = append(ops, func(context.Context, *sql.Tx) error { panic("oh") })
					}
					err := s.Update(t.Context(), ops...)
					own := err != nil && (strings.Contains(err.Error(), "of its own") || strings.Contains(err.Error(), "oh"))
					if err != nil && !own && sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
						t.Errorf("got %v", err)
					}
					mu.Lock()
					if err == nil {
						told[id] = true
					} else if !own {
						refused++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		_ = os.Remove(ballast)
		if err := s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error { // room for the next round
			_, err := tx.ExecContext(ctx, `DELETE FROM servers WHERE id LIKE '%x'`)
			return err
		}); err != nil {
			t.Fatalf("an update with room again: got %v, want nil", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	if refused == 0 || len(told) == 0 {
		t.Fatalf("got %d updates written and %d refused, want some of both", len(told), refused)
	}
	t.Logf("%d were told that it is written, %d that there is no room", len(told), refused)
	again := open(t, store.Config{Dir: dir})
	rows, err := again.DB().QueryContext(t.Context(), `SELECT id FROM servers`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		if id = strings.TrimSuffix(id, "twin"); !told[id] {
			t.Errorf("got row %q of an update that was refused, want none", id)
		}
		delete(told, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(told) > 0 {
		t.Errorf("got %d updates without a row though they succeeded, want none", len(told))
	}
}

// A note that was kept on a disk that fills up is in the database once there is room, and one
// that was refused is not.
func TestNotesOnAFullDisk(t *testing.T) {
	storetest.SQLite(t)
	disk := onSmallDisk(t, "3m")
	if disk == "" {
		return
	}
	dir := filepath.Join(disk, "state")
	s, err := store.Open(t.Context(), store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	var mu sync.Mutex
	told, refused := map[string]bool{}, 0
	for round := range 4 {
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 100 {
					id := fmt.Sprintf("%d.%d.%d", round, w, i)
					n := note(id)
					n.Data = append(n.Data, make([]byte, 8000)...)
					err := s.Keep(t.Context(), n)
					if err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
						t.Errorf("got %v, want backend_unavailable", err)
					}
					mu.Lock()
					if err == nil {
						told[id] = true
					} else {
						refused++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		_ = os.Remove(ballast)
		if err := s.Settle(t.Context()); err != nil {
			t.Fatalf("with room again: got %v, want nil", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	if refused == 0 || len(told) == 0 {
		t.Fatalf("got %d notes kept and %d refused, want some of both", len(told), refused)
	}
	t.Logf("%d were kept, %d refused", len(told), refused)
	if n := countServers(t, open(t, store.Config{Dir: dir})); n != len(told) {
		t.Errorf("got %d rows, want %d", n, len(told))
	}
}

// TestCloseUnderWriters: a store that is closed while many write has every update that
// succeeded, and all callers return.
func TestCloseUnderWriters(t *testing.T) {
	dir := t.TempDir()
	for round := range 10 {
		s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
		if err != nil {
			t.Fatal(err)
		}
		begin := countServers(t, s)
		var wg sync.WaitGroup
		var mu sync.Mutex
		told := 0
		started := make(chan struct{}, 8)
		for w := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					ctx, cancel := context.WithCancel(t.Context())
					if i%3 == 1 {
						go cancel() // at any moment
					}
					err := s.Update(ctx, addServer(fmt.Sprintf("%d.%d.%d", round, w, i)))
					cancel()
					switch {
					case err == nil:
						mu.Lock()
						told++
						mu.Unlock()
					case errors.Is(err, context.Canceled):
					default: // it is closed
						return
					}
					if i == 5 {
						started <- struct{}{}
					}
				}
			})
		}
		<-started
		if err := s.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
		wg.Wait()
		again := open(t, store.Config{Dir: dir})
		if got := countServers(t, again) - begin; got != told {
			t.Errorf("%d rows are there, and %d writers were told so", got, told)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLookOnAReadOnlyFileSystem: a database that no process has open is read there. One that a process has open is not read
// without what is in the files beside it.
func TestLookOnAReadOnlyFileSystem(t *testing.T) {
	storetest.SQLite(t)
	disk := onSmallDisk(t, "8m")
	if disk == "" {
		return
	}
	dir := filepath.Join(disk, "state")
	s := open(t, store.Config{Dir: dir})
	if err := s.Update(t.Context(), addExecution("a", "completed")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		end  func() error
	}{
		{"open", s.Close},
		{"closed", func() error { return nil }},
	} {
		copied := filepath.Join(disk, c.name)
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(copied, copied, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", copied, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		got, err := store.Executions(t.Context(), store.Config{Dir: copied})
		if err == nil && got["completed"] != 1 {
			t.Errorf("%s: got %v, want the row or an error", c.name, got)
		}
		if c.name == "closed" && err != nil {
			t.Errorf("closed: got %v, want the row", err)
		}
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
	}
}
