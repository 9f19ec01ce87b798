package process_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// TestOpenAfterTheBuilderWasKilled: a builder that is killed from outside, as by the
// kernel when memory is short, is replaced, and no caller notices, however soon after the
// kill it calls Open.
func TestOpenAfterTheBuilderWasKilled(t *testing.T) {
	had := childrenOf(os.Getpid())
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	for i := range 15 {
		again, later := spec(fmt.Sprintf("again%d", i)), spec(fmt.Sprintf("next%d", i))
		again.WorkInodes, later.WorkInodes = int64(100+2*i), int64(101+2*i) // no shape twice: none is ready, all are built
		sb, err := b.Open(t.Context(), again)
		if err != nil {
			t.Fatalf("Open %d: got %v, want a sandbox", i, err)
		}
		killed := 0
		for _, pid := range childrenOf(os.Getpid()) {
			if !slices.Contains(had, pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
		if killed != 1 {
			t.Fatalf("%d builders were killed, want 1", killed)
		}
		time.Sleep(time.Duration(i%5) * 300 * time.Microsecond) // each round calls Open at another moment after the kill
		next, err := b.Open(t.Context(), later)
		if err != nil {
			t.Fatalf("Open %d after the builder was killed: got %v, want a sandbox", i, err)
		}
		if err := next.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = sb.Close(t.Context()) // its jail is gone
	}
}

// TestCloseWhileOpening: Close of a backend comes while sandboxes are being
// built. All of it ends, and nothing is left.
func TestCloseWhileOpening(t *testing.T) {
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}, "Plain": {process.WithoutNamespaces}} {
		t.Run(name, func(t *testing.T) {
			before := backendtest.Count(t)
			for round := range 6 {
				b := newBackend(change...)(t)
				if round%2 == 0 { // the jail stands already
					b.Capabilities(t.Context())
				}
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						_, err := b.Open(t.Context(), spec(fmt.Sprintf("late%d", i))) // what it gives is the backend's to close
						if err != nil && sandboxmcp.CodeOf(err) == "" {
							t.Errorf("Open: got %v, want an error with a code", err)
						}
					})
				}
				time.Sleep(time.Duration(round) * 700 * time.Microsecond) // each round closes at another moment of Open
				begin := time.Now()
				if err := b.Close(t.Context()); err != nil {
					t.Errorf("Close: got %v, want nil", err)
				}
				wg.Wait()
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("Close and Open: got %v, want at most a minute", took)
				}
				if _, err := b.Open(t.Context(), spec("after")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
					t.Errorf("Open after Close: got %v, want backend_unavailable", err)
				}
			}
			before.Same(t)
		})
	}
}
