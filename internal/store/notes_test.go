package store_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// makers makes the steps of the notes of this test.
func makers() store.NoteMakers {
	return store.NoteMakers{"server": func(data []byte) (store.Op, error) { return addServer(string(data)), nil }}
}

func note(id string) store.Note {
	return store.Note{Op: addServer(id), Kind: "server", Data: []byte(id)}
}

func keep(t *testing.T, s *store.Store, ids ...string) {
	t.Helper()
	var all []store.Note
	for _, id := range ids {
		all = append(all, note(id))
	}
	if err := s.Keep(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
}

// keepNotes keeps notes, says so after each, and waits to be killed.
func keepNotes(s *store.Store, n int) error {
	if err := s.Keep(context.Background()); err != nil { // nothing, which ends no file
		return err
	}
	for i := range n {
		if err := s.Keep(context.Background(), note("child"+strconv.Itoa(i))); err != nil {
			return err
		}
		fmt.Println("kept", i)
	}
	time.Sleep(time.Minute)
	return nil
}

// keeper starts a process that keeps n notes, and returns it after it has kept at least kept.
func keeper(t *testing.T, dir string, n, kept int) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s keep %d", childEnv, dir, n))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "kept "+strconv.Itoa(kept-1) {
			return cmd
		}
	}
	t.Fatal("the process ended before it kept its notes")
	return nil
}

func end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(dir, "sandboxmcp.db-notes"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func countNoteRows(t *testing.T, s *store.Store) int {
	t.Helper()
	return countRows(t, s, "notes")
}

// Kept notes are there once their process settles, once it updates, and soon in any case.
func TestNotesAreCarriedOut(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	keep(t, s, "a", "b")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countServers(t, s); n != 2 {
		t.Errorf("after Settle: got %d rows, want 2", n)
	}
	keep(t, s, "c")
	seen := 0
	err := s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM servers`).Scan(&seen)
	})
	if err != nil || seen != 3 {
		t.Errorf("in the next Update: got %d rows and %v, want 3", seen, err)
	}
	keep(t, s, "d")
	for countServers(t, s) != 4 {
		time.Sleep(5 * time.Millisecond)
	}
}

// An Update that fails does not take away the notes that its transaction carried out.
func TestNotesSurviveAFailedUpdate(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	release := hold(t, s)
	keep(t, s, "a")
	broken := errors.New("broken")
	failed := make(chan error)
	go func() { failed <- s.Update(t.Context(), func(context.Context, *sql.Tx) error { return broken }) }()
	for store.Waiting(s) == 0 {
		time.Sleep(time.Millisecond)
	}
	release()
	if err := <-failed; !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countServers(t, s); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

// While the step of a note fails, nothing more is kept, and nothing that was is lost.
func TestANoteThatFails(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	var mended atomic.Bool
	add := note("b")
	add.Op = func(ctx context.Context, tx *sql.Tx) error {
		if !mended.Load() {
			return errors.New("not today")
		}
		return addServer("b")(ctx, tx)
	}
	keep(t, s, "a")
	if err := s.Keep(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	for what, try := range map[string]func() error{
		"Settle": func() error { return s.Settle(t.Context()) },
		"Update": func() error { return s.Update(t.Context(), addServer("c")) },
		"Keep":   func() error { return s.Keep(t.Context(), note("d")) },
	} {
		if what == "Keep" { // it waits for nothing until the notes before are known to be stuck
			_ = s.Settle(t.Context())
		}
		e := sandboxmcp.AsError(try())
		if e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, "not today") || e.Hint == "" {
			t.Errorf("%s: got %v, want backend_unavailable that says why, with a hint", what, e)
		}
	}
	mended.Store(true)
	keep(t, s, "e")
	if n := countServers(t, s); n != 3 {
		t.Errorf("got %d rows, want a, b and e", n)
	}
}

// Close carries out what waits, and leaves neither a file nor a row.
func TestCloseCarriesOutNotes(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s, err := store.Open(t.Context(), store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, "a")
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("while it is open: got the files %v, want one", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("got the files %v, want none", got)
	}
	if err := s.Keep(t.Context(), note("b")); err == nil {
		t.Error("Keep after Close: got no error")
	}
	if n := countServers(t, open(t, store.Config{Dir: dir})); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

// What a process has kept before it was killed is there once, for a Store and for a View.
func TestNotesOfAKilledProcess(t *testing.T) {
	storetest.SQLite(t)
	for name, kept := range map[string]int{"Waiting": 3, "Many": 700} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			end(t, keeper(t, dir, kept, kept))
			v, err := store.Look(t.Context(), store.Config{Dir: dir, Notes: makers()})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			var n int
			if err := v.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM servers`).Scan(&n); err != nil || n != kept {
				t.Errorf("looking: got %d rows and %v, want %d", n, err, kept)
			}
			s := open(t, store.Config{Dir: dir, Notes: makers()})
			for range 2 {
				if err := s.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := countServers(t, s); n != kept {
				t.Errorf("got %d rows, want %d", n, kept)
			}
			if got := files(t, dir); len(got) != 0 {
				t.Errorf("got the files %v, want none", got)
			}
		})
	}
}

// A process that is killed while it keeps notes loses none that it has acknowledged.
func TestKilledWhileKeeping(t *testing.T) {
	storetest.SQLite(t)
	for _, after := range []int{1, 40, 300} {
		dir := t.TempDir()
		end(t, keeper(t, dir, 100_000, after))
		s := open(t, store.Config{Dir: dir, Notes: makers()})
		if err := s.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		var highest int
		if err := s.DB().QueryRowContext(t.Context(), `SELECT max(CAST(substr(id, 6) AS INTEGER)) FROM servers`).Scan(&highest); err != nil {
			t.Fatal(err)
		}
		if n := countServers(t, s); n < after || n != highest+1 {
			t.Errorf("got %d rows up to number %d, want at least %d and none missing", n, highest, after)
		}
	}
}

// The notes of a process that lives and does not get to them are carried out by who needs them,
// once.
func TestNotesOfAStoppedProcess(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir, Notes: makers()})
	cmd := keeper(t, dir, 20, 20)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countServers(t, s); n != 20 {
		t.Errorf("got %d rows, want 20", n)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // it finds its notes done
	end(t, cmd)
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countServers(t, s); n != 20 {
		t.Errorf("after it went on: got %d rows, want 20", n)
	}
}

// A frame that is not whole, or not of this file, ends what is read of it.
func TestBrokenFrames(t *testing.T) {
	storetest.SQLite(t)
	for name, damage := range map[string]func(whole []byte) []byte{
		"Half":     func(b []byte) []byte { return append(b, b[:len(b)/3-1]...) },
		"Repeated": func(b []byte) []byte { return append(b, b...) },
		"Zeros":    func(b []byte) []byte { return append(b, make([]byte, 4096)...) },
		"Huge":     func(b []byte) []byte { return append(b, "\xff\xff\xff\xff\xff\xff\xff\xff"...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := keeper(t, dir, 3, 3)
			end(t, cmd)
			names := files(t, dir)
			if len(names) != 1 {
				t.Fatalf("got the files %v, want one", names)
			}
			path := filepath.Join(dir, "sandboxmcp.db-notes", names[0])
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, damage(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, store.Config{Dir: dir, Notes: makers()})
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := countServers(t, s); n != 3 {
				t.Errorf("got %d rows, want 3", n)
			}
		})
	}
}

// A record of a kind that this release does not know stays, and reading fails.
func TestUnknownKindOfNote(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	end(t, keeper(t, dir, 1, 1))
	s := open(t, store.Config{Dir: dir, Notes: store.NoteMakers{}})
	if countServers(t, s) == 1 {
		t.Skip("the process was faster")
	}
	if err := s.Settle(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Errorf("got %v, want an error that says why", err)
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("got the files %v, want the one", got)
	}
}

// While the database is busy, a bounded number of notes waits. Then Keep waits as Update does,
// and a note that was not kept is not carried out.
func TestNotesThatWaitAreBounded(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	release := hold(t, s)
	kept := 0
	for kept < 5000 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := s.Keep(ctx, note(strconv.Itoa(kept)))
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the end of the context", err)
			}
			break
		}
		kept++
	}
	release()
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countServers(t, s); n != kept || kept > 1000 {
		t.Errorf("got %d rows, want %d, which is bounded", n, kept)
	}
}

// With synchronous=full each Keep is on the disk in the database, so there is no file.
func TestKeepWithSynchronousFull(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir, Synchronous: store.SynchronousFull})
	keep(t, s, "a")
	if n := countServers(t, s); n != 1 || len(files(t, dir)) != 0 {
		t.Errorf("got %d rows and the files %v, want 1 and none", n, files(t, dir))
	}
}

// The file is replaced once it is large and all of its notes are in the database.
func TestLargeFilesOfNotesAreReplaced(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	big := strings.Repeat("x", 300<<10)
	seen := map[string]bool{}
	for i := range 12 {
		n := note("big" + strconv.Itoa(i))
		n.Data = []byte(big)
		if err := s.Keep(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		for _, f := range files(t, dir) {
			seen[f] = true
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) < 2 || len(files(t, dir)) > 1 {
		t.Errorf("got %d files over time and %v in the end, want some and at most one", len(seen), files(t, dir))
	}
	if n := countServers(t, s); n != 12 {
		t.Errorf("got %d rows, want 12", n)
	}
	keep(t, s, "last")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countNoteRows(t, s); n != 1 {
		t.Errorf("got %d rows about files, want 1", n)
	}
}
