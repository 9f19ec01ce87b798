package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// manyLocks holds more record locks than a sandbox may, until it is ended.
const manyLocks = `
import fcntl, os, struct, time
f = [os.open("l%d" % i, os.O_RDWR | os.O_CREAT) for i in range(100)]
for n in range(60000): fcntl.fcntl(f[n % 100], fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, n // 100 * 2, 1, 0))
time.sleep(30)
`

// TestTooManyLocksEndTheRun: however code is run, one that holds too many kernel
// objects is ended as out of memory, and the result names them.
func TestTooManyLocksEndTheRun(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
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
