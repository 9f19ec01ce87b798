package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestShellServerOutlivesATimeout: a Node.js server that a shell cell starts in the background
// still answers after a later cell was interrupted at its timeout. The shell cannot make
// Node.js ignore the interrupt, so the signal must not reach it.
func TestShellServerOutlivesATimeout(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	needs(t, e, sandboxmcp.Node)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	start := `cat >server.js <<'END'
require('http').createServer((q, a) => a.end('still here\n')).listen(8000, () => require('fs').writeFileSync('up', ''))
END
node server.js & until [ -e up ]; do sleep 0.05; done`
	if r := execute(t, e, in(id, start)); r.ExitCode != 0 {
		t.Fatalf("starting the server: got %+v, want exit 0", r)
	}
	slow := in(id, "sleep 30")
	slow.Limits.TimeoutSeconds = 1
	if r := execute(t, e, slow); r.Status != sandboxmcp.StatusTimedOut || r.StateLost {
		t.Fatalf("the slow cell: got %s, lost %v; want timed_out with its state kept", r.Status, r.StateLost)
	}
	ask := `exec 5<>/dev/tcp/127.0.0.1/8000; printf 'GET / HTTP/1.0\r\n\r\n' >&5; cat <&5; jobs -r`
	if r := execute(t, e, in(id, ask)); !strings.Contains(r.Stdout, "still here") || !strings.Contains(r.Stdout, "node server.js") {
		t.Errorf("the server after a timeout: got %q, %q; want its answer and its job", r.Stdout, r.Stderr)
	}
}
