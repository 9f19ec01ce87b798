package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// sendsALingeringSocket sends a connection that lingers, with bytes that are never
// taken, over each descriptor that the program was given, and closes its own. The
// kernel closes a descriptor that was sent when the receiver reads or closes the
// socket: in the server's thread, which would wait there.
const sendsALingeringSocket = `
import array, os, socket, struct
server = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(server.getsockname())
peer, _ = server.accept()
s.setblocking(False)
try:
    while True: s.send(bytes(65536))
except BlockingIOError: pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 8))
took = []
for fd in range(5):
    for write in (b"", b"x", b"\0\0\0\1x"):
        try:
            to = socket.socket(fileno=os.dup(fd))
            to.sendmsg([write], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
            took.append(fd)
        except OSError: pass
print("took", sorted(set(took)), flush=True)
if not took:  # the program's own close would wait
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
s.close()
`

// TestServerIsNotHeldByDescriptorsOfAProgram: no program has a channel to the
// server that a descriptor can be sent over, however it was started.
func TestServerIsNotHeldByDescriptorsOfAProgram(t *testing.T) {
	programs := map[sandboxmcp.Language]string{
		sandboxmcp.Python: sendsALingeringSocket,
		sandboxmcp.Node:   "const fs = require('fs'); const took = []; for (let fd = 0; fd < 5; fd++) { try { if (fs.fstatSync(fd).isSocket()) took.push(fd); } catch {} } console.log('took', JSON.stringify(took));",
		sandboxmcp.Shell:  `took=; for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13; do [ -S /proc/$$/fd/$fd ] && took="$took $fd"; done; echo "took [$took]"`,
	}
	for name, pool := range map[string]bool{"one-shot": false, "ready": true} {
		t.Run(name, func(t *testing.T) {
			var b backend.Backend
			e := openRealOn(t, process.Config{NoPool: !pool}, func(c *engine.Config) { b, c.MaxSessions = c.Backends[0], 20 })
			for l, code := range programs {
				needs(t, e, l)
				held := func(r sandboxmcp.Request) {
					t.Helper()
					r.Limits.TimeoutSeconds = 5
					if res := execute(t, e, r); res.Stdout != "took []\n" {
						t.Errorf("%s: got %s %q %q, want no descriptor that takes others", l, res.Status, res.Stdout, res.Stderr)
					}
				}
				rounds := 1
				if pool { // executed, then in a ready sandbox, then forked or started ahead
					rounds = 6
				}
				for range rounds {
					held(sandboxmcp.Request{Code: code, Language: l})
				}
				if ready := b.(backend.Pooler).Pool(); pool && l == sandboxmcp.Python && ready["zygotes"] == 0 {
					t.Logf("nothing was forked: %v", ready)
				}
				for range rounds {
					id := create(t, e, sandboxmcp.SessionSpec{Language: l})
					held(in(id, code))
					held(in(id, code))
				}
			}
		})
	}
}
