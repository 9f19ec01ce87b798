//go:build linux || darwin

package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// holdLease takes a lease, prints that it has it, and holds it until the process is killed.
func holdLease(s *store.Store) error {
	l, err := s.TryLease(context.Background(), "a/lease")
	if err != nil {
		return err
	}
	fmt.Println("held")
	time.Sleep(time.Hour) // not for ever: the runtime ends a process in which nothing can happen
	return l.Release()    // a lease that nothing refers to is freed by the garbage collector
}

func TestALeaseOfAKilledProcessIsFree(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s hold 0", childEnv, s.Dir()))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "held"; {
	}
	if _, err := s.TryLease(t.Context(), "a/lease"); !errors.Is(err, store.ErrLeased) || !s.Leased(t.Context(), "a/lease") {
		t.Errorf("while it lives: got %v and leased %v, want ErrLeased", err, s.Leased(t.Context(), "a/lease"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Lease(ctx, "a/lease"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lease while it lives: got %v, want the context's error", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if storetest.Postgres() { // the server has to notice that the connection is gone
		testkit.Until(t, "the lease of the dead process is free", func() bool { return !s.Leased(t.Context(), "a/lease") })
	}
	if s.Leased(t.Context(), "a/lease") {
		t.Error("the lease of the dead process: got it held, want it free")
	}
	l, err := s.Lease(t.Context(), "a/lease")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Discard(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir(), "a", "lease")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Discard: got %v, want not exist", err)
	}
}

// Only one process holds a lease at a time, also if holders discard its file while others wait
// for it.
func TestOneHoldsALease(t *testing.T) {
	dir := t.TempDir()
	stores := []*store.Store{open(t, store.Config{Dir: dir}), open(t, store.Config{Dir: dir})}
	var holders, held atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		s := stores[i%2]
		wg.Go(func() {
			for j := range 25 {
				l, err := s.Lease(t.Context(), "lease")
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("got %d holders at once, want 1", n)
				}
				held.Add(1)
				holders.Add(-1)
				if j%2 == 0 {
					err = l.Discard()
				} else {
					err = l.Release()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := held.Load(); got != 200 {
		t.Errorf("it was held %d times, want 200", got)
	}
}

// A caller that gives up while it waits for a lease frees none of the others.
func TestACallerThatGivesUpFreesNoLease(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, store.Config{Dir: dir}), open(t, store.Config{Dir: dir})
	owner, err := s.Lease(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		if l, err := s.Lease(ctx, "another"); err == nil {
			if err = l.Release(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the context's error", err)
		}
		cancel()
		if l, err := other.TryLease(t.Context(), "owner"); !errors.Is(err, store.ErrLeased) {
			t.Fatalf("after %d callers: got %v, %v, want it held", i+1, l, err)
		}
	}
	if err := owner.Release(); err != nil {
		t.Error(err)
	}
}

func TestLeasesThatCannotBe(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	if err := unix.Mkfifo(filepath.Join(s.Dir(), "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(s.Dir(), "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", "../lease", "/lease", "fifo", "link"} {
		if l, err := s.TryLease(t.Context(), name); err == nil || errors.Is(err, store.ErrLeased) {
			t.Errorf("%s: got %v, %v, want another error", strconv.Quote(name), l, err)
		}
		if l, err := s.Lease(t.Context(), name); err == nil {
			t.Errorf("%s: got %v, want an error", strconv.Quote(name), l)
		}
	}
	if s.Leased(t.Context(), "nothing") {
		t.Error("a lease that no process took: got it held, want it free")
	}
}
