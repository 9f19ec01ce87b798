package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestTooManyLocksEndTheRun: however code is run, one that holds too many kernel
// objects is ended as out of memory, and the result names them.
func TestTooManyLocksEndTheRun(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	manyLocks := testkit.Hostile(t, "holds-locks.py")
	ways := map[string]func(t *testing.T) sandboxmcp.Request{
		"Python": func(*testing.T) sandboxmcp.Request {
			return sandboxmcp.Request{Code: manyLocks, Language: sandboxmcp.Python}
		},
		"ForkedPython": func(t *testing.T) sandboxmcp.Request {
			execute(t, e, sandboxmcp.Request{Code: "1", Language: sandboxmcp.Python})
			return sandboxmcp.Request{Code: manyLocks, Language: sandboxmcp.Python}
		},
		"Shell": func(*testing.T) sandboxmcp.Request {
			return sandboxmcp.Request{Code: shellCode(manyLocks), Language: sandboxmcp.Shell}
		},
		"PythonSession": func(t *testing.T) sandboxmcp.Request {
			return in(create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Limits: attacked}), manyLocks)
		},
	}
	for name, request := range ways {
		t.Run(name, func(t *testing.T) {
			r := request(t)
			res := execute(t, e, r)
			if res.Status != sandboxmcp.StatusOutOfMemory {
				t.Fatalf("got %s, want %s; stderr %q", res.Status, sandboxmcp.StatusOutOfMemory, res.Stderr)
			}
			if exceeded, _ := res.Metadata["exceeded"].(string); !strings.Contains(exceeded, "file locks") {
				t.Errorf("metadata: got exceeded %q, want file locks named", exceeded)
			}
			if !strings.Contains(res.Stderr, "Ended for holding more than") {
				t.Errorf("got stderr %q, want a line that says what it held", res.Stderr)
			}
			if r.SessionID != "" && !ended(t, e, r.SessionID) {
				stillServes(t, e, r.SessionID, sandboxmcp.Python)
			}
		})
	}
}

// TestTooManyConnectionsEndTheRun: a run with too many TCP connections, of either version
// of IP, is ended as out of memory, and the result names them.
func TestTooManyConnectionsEndTheRun(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	for family, address := range map[string]string{"AF_INET": "127.0.0.1", "AF_INET6": "::1"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			res := execute(t, e, sandboxmcp.Request{Code: testkit.Hostile(t, "holds-connections.py"), Language: sandboxmcp.Python, Env: map[string]string{"FAMILY": family, "ADDRESS": address}})
			if exceeded, _ := res.Metadata["exceeded"].(string); res.Status != sandboxmcp.StatusOutOfMemory || !strings.Contains(exceeded, "connections") { // their number, or what they may hold
				t.Errorf("got %s, exceeded %q, stderr %q; want %s and connections named", res.Status, exceeded, res.Stderr, sandboxmcp.StatusOutOfMemory)
			}
		})
	}
}

// hostile runs a hostile Python program in an engine of its own.
func hostile(t *testing.T, file string) sandboxmcp.Result {
	t.Helper()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	return execute(t, e, sandboxmcp.Request{Code: testkit.Hostile(t, file), Language: sandboxmcp.Python})
}

// TestErrorsOfSocketsTakeNoMemory: a program cannot queue errors in sockets, because no limit
// counts that memory. Without the wall, the queues hold many MiB.
func TestErrorsOfSocketsTakeNoMemory(t *testing.T) {
	res := hostile(t, "fills-error-queues.py")
	if got := strings.TrimSpace(res.Stdout); got != "0" {
		t.Errorf("got %q MiB of errors that wait, want 0; stderr %q", got, res.Stderr)
	}
}

// TestControlMessagesAreSmall: a call that waits in sendmsg keeps its control messages in memory that no limit
// counts, and each task can wait in one.
func TestControlMessagesAreSmall(t *testing.T) {
	res := hostile(t, "waits-with-control-messages.py")
	if got := strings.TrimSpace(res.Stdout); got != "refused 200" {
		t.Errorf("got %q, want refused 200; stderr %q", got, res.Stderr)
	}
}

// TestNoIPv6Neighbors: the kernel keeps a neighbor for each IPv6 address that a packet leaves for, in memory that
// no limit counts.
func TestNoIPv6Neighbors(t *testing.T) {
	res := hostile(t, "fills-neighbors.py")
	if strings.Contains(res.Stderr, "Address family not supported") {
		t.Skip("the kernel has no IPv6")
	}
	if got := strings.TrimSpace(res.Stdout); got != "0 1" {
		t.Errorf("got %q, want 0 packets to other addresses and 1 to ::1; stderr %q", got, res.Stderr)
	}
}
