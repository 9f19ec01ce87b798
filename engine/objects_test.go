package engine_test

import (
	"fmt"
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

// manyConnections leaves more connections to be accepted than a sandbox may have.
const manyConnections = `
import socket, time
held = []
for _ in range(160):
    l = socket.socket(%[1]s); l.bind((%[2]q, 0)); l.listen(1000); held.append(l)
    for _ in range(100):
        s = socket.socket(%[1]s); s.connect(l.getsockname()); s.send(b"x"); s.close()
time.sleep(30)
`

// TestTooManyConnectionsEndTheRun: of both versions of IP.
func TestTooManyConnectionsEndTheRun(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	for family, address := range map[string]string{"AF_INET": "127.0.0.1", "AF_INET6": "::1"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			res := execute(t, e, sandboxmcp.Request{Code: fmt.Sprintf(manyConnections, "socket."+family, address), Language: sandboxmcp.Python})
			if exceeded, _ := res.Metadata["exceeded"].(string); res.Status != sandboxmcp.StatusOutOfMemory || !strings.Contains(exceeded, "TCP connections") {
				t.Errorf("got %s, exceeded %q, stderr %q; want %s and TCP connections named", res.Status, exceeded, res.Stderr, sandboxmcp.StatusOutOfMemory)
			}
		})
	}
}

// errorQueues has errors and timestamps, with copies of packets, queued in sockets that
// nobody reads, and tells how many bytes wait.
const errorQueues = `
import os, socket, struct
held = []
stamps = [False, True] if os.path.exists("/proc/sys/net/core/tstamp_allow_data") else [False]
for family, host, level, option in (socket.AF_INET, "127.0.0.1", 0, 11), (socket.AF_INET6, "::1", 41, 25):
    there = socket.socket(family, socket.SOCK_DGRAM); there.bind((host, 0)); held.append(there)
    gone = socket.socket(family, socket.SOCK_DGRAM); gone.bind((host, 0)); nobody = gone.getsockname(); gone.close()
    for stamped in stamps:
        for _ in range(30):
            s = socket.socket(family, socket.SOCK_DGRAM); held.append(s)
            if not stamped: s.setsockopt(level, option, 1)
            for _ in range(100):
                try:
                    if stamped: s.sendmsg([b"x" * 1000], [(1, 37, struct.pack("I", 0x102))], 0, there.getsockname())
                    else: s.sendto(b"x" * 1000, nobody)
                except ConnectionError: pass
waiting = 0
for name in "udp", "udp6":
    for line in open("/proc/net/" + name).read().splitlines()[1:]:
        waiting += int(line.split()[4].split(":")[1], 16)
print(waiting >> 20)
`

// TestErrorsOfSocketsTakeNoMemory: no limit counts the queue of a socket's errors.
func TestErrorsOfSocketsTakeNoMemory(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	res := execute(t, e, sandboxmcp.Request{Code: errorQueues, Language: sandboxmcp.Python})
	if got := strings.TrimSpace(res.Stdout); got != "0" {
		t.Errorf("got %q MiB of errors that wait, want 0; stderr %q", got, res.Stderr)
	}
}
