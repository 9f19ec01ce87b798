package backendtest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// endedFor runs a payload that must be ended because of the kernel objects that it holds.
func (s *suite) endedFor(t *testing.T, x *box, p backend.Process, want string) {
	t.Helper()
	r, out, errs := x.start(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := r.Wait(ctx)
	if err != nil {
		t.Fatalf("it is not ended: %v, it printed %q %q", err, out.String(), errs.String())
	}
	if !soon(t, patience, func() bool { return x.usage(t).OOMKills > 0 }) {
		t.Fatalf("got no kill, want one for %s; exit %+v, it printed %q %q", want, e, out.String(), errs.String())
	}
	if u := x.usage(t); !strings.Contains(strings.Join(u.Exceeded, "\n"), want) {
		t.Errorf("got exceeded %q (%d kills), want %q named", u.Exceeded, u.OOMKills, want)
	}
}

// weakTellsOfObjects: every tier reports the kernel objects that no limit counts.
func weakTellsOfObjects(t *testing.T, s *suite) {
	iso, err := s.open(t).Isolation(t.Context())
	if err != nil || !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "file locks") }) {
		t.Errorf("Isolation: %v; got weak %q, want a line on file locks", err, iso.Weak)
	}
}

// locksAreCounted: record locks are kernel memory that no limit counts. A sandbox that holds too
// many is ended, however its processes share them. Another sandbox is not ended (D17).
func locksAreCounted(t *testing.T, s *suite) {
	modest := s.open(t)
	s.interlock(t, modest)
	p := modest.python(t, "d17-locks.py")
	p.Env = modest.environment(map[string]string{"KIND": "few"})
	r, out, errs := modest.start(t, p)
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatalf("a program with few locks does not come up: %q %q", out.String(), errs.String())
	}
	for _, kind := range []string{"one", "apart", "orphans"} {
		t.Run(kind, func(t *testing.T) {
			x := s.open(t)
			s.interlock(t, x)
			p := x.python(t, "d17-locks.py")
			p.Env = x.environment(map[string]string{"KIND": kind})
			s.endedFor(t, x, p, "file locks")
		})
	}
	if u := modest.usage(t); u.OOMKills != 0 || len(u.Exceeded) != 0 {
		t.Errorf("a program with few locks: got %d kills for %q, want none", u.OOMKills, u.Exceeded)
	}
	_ = r.Signal(t.Context(), 9)
}

// connectionsAreCounted: connections that wait to be accepted are kernel memory that no
// limit counts. A sandbox that holds too many is ended (D18).
func connectionsAreCounted(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a network namespace of its own")
	}
	x := s.open(t)
	s.interlock(t, x)
	s.endedFor(t, x, x.python(t, "d18-connections.py"), "connections")
}

// portsAreCounted: a datagram to a multicast address goes to all sockets of its port, each in an interrupt.
// None can be sent to a broadcast address. A sandbox with many UDP sockets of one port is ended (D26).
func portsAreCounted(t *testing.T, s *suite) {
	s.socketsEnd(t, "d26-one-port.py", [2]int{16, 400}, "refused\nover\n", "UDP sockets of one port")
}

// waitingSendersAreCounted: any number of Unix sockets can wait to send to one, and a message that is taken from
// it wakes all of them. A sandbox with many such sockets is ended (D28).
func waitingSendersAreCounted(t *testing.T, s *suite) {
	s.socketsEnd(t, "d28-waiting-senders.py", [2]int{1800, 7000}, "over\n", "Unix sockets for messages")
}

// socketsAreCounted: a read of the list of sockets takes as long as the list, and no signal ends it. A sandbox with
// many sockets is ended (D30).
func socketsAreCounted(t *testing.T, s *suite) {
	s.socketsEnd(t, "d30-many-sockets.py", [2]int{12000, 22000}, "over\n", "16384 sockets")
}

// directoriesAreCounted: a file system of the host keeps names for each open directory. A sandbox with many open
// directories is ended (D31).
func directoriesAreCounted(t *testing.T, s *suite) {
	s.manyEnd(t, "d31-open-directories.py", [2]int{3600, 7200}, "over\n", "4096 open directories")
}

// textsAreCounted: the kernel keeps the text of each open file of /proc/PID/fdinfo, which may be long. A sandbox whose
// memory no cgroup limits is ended if it has many of them open, also in calls that wait to send them (D32).
func textsAreCounted(t *testing.T, s *suite) {
	iso, err := s.open(t).Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "memory: watched") }) {
		t.Skip("a cgroup counts the texts")
	}
	if !s.full() {
		t.Skip("Landlock keeps programs from /proc")
	}
	program := func(x *box, kind, many, seconds string) backend.Process {
		s.interlock(t, x)
		p := x.python(t, "d32-open-texts.py")
		p.Env = x.environment(map[string]string{"KIND": kind, "MANY": many, "SECONDS": seconds})
		return p
	}
	for kind, many := range map[string]string{"open": "40", "others sent": "200"} {
		x := s.open(t)
		if e := x.run(t, program(x, kind, many, "1")); e.Out != "over\n" {
			t.Errorf("%s %s: got %q, exit %+v, stderr %q, want the program not ended", many, kind, e.Out, e.Exit, e.Err)
		}
	}
	for _, kind := range []string{"open", "sent"} {
		t.Run(kind, func(t *testing.T) {
			x := s.open(t)
			s.endedFor(t, x, program(x, kind, "200", "20"), "64 open files of /proc/PID/fdinfo")
		})
	}
}

// socketsEnd is manyEnd for a program that makes sockets.
func (s *suite) socketsEnd(t *testing.T, program string, sockets [2]int, out, why string) {
	t.Helper()
	if !s.full() {
		s.lacks(t, "a network namespace of its own")
	}
	s.manyEnd(t, program, sockets, out, why)
}

// manyEnd runs a program that makes as many objects as the variable MANY says. With the first number of them it must print
// out, and with the second its sandbox must be ended for why.
func (s *suite) manyEnd(t *testing.T, program string, many [2]int, out, why string) {
	t.Helper()
	x := s.open(t)
	s.interlock(t, x)
	p := x.python(t, program)
	p.Env = x.environment(map[string]string{"MANY": strconv.Itoa(many[0]), "SECONDS": "1"})
	if e := x.run(t, p); e.Out != out {
		t.Errorf("%d: got %q, exit %+v, stderr %q, want %q and the program not ended", many[0], e.Out, e.Exit, e.Err, out)
	}
	p.Env = x.environment(map[string]string{"MANY": strconv.Itoa(many[1]), "SECONDS": "20"})
	s.endedFor(t, x, p, why)
}

// killsAreCounted: the kernel writes a line to the host's log for each process that the memory
// limit ends. A sandbox in which that happens too often is ended (D21).
func killsAreCounted(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 64 * mib })
	iso, err := x.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(iso.Walls, "memory limit (cgroup v1)") {
		t.Skip("the memory limit ends all processes at once, or there is none")
	}
	s.interlock(t, x)
	s.endedFor(t, x, x.python(t, "d21-kills.py"), "that the memory limit ended")
}

// pageTablesAreMemory: page tables of a program count as memory (D19).
func pageTablesAreMemory(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 96 * mib })
	s.interlock(t, x)
	e := x.run(t, x.python(t, "d19-page-tables.py"))
	if u := x.usage(t); u.OOMKills == 0 || e.Exit.Signal != 9 {
		t.Errorf("got %d kills, exit %+v, %q, want it ended within 96 MiB; stderr %q", u.OOMKills, e.Exit, e.Out, e.Err)
	}
}

// mappingsAreMemory: the kernel's records of mappings, and links to the memory of ancestors, count as memory of a program. One
// with some mappings may have them (D33).
func mappingsAreMemory(t *testing.T, s *suite) {
	for kind, ends := range map[string]bool{"few": false, "many": true, "links": true} {
		t.Run(kind, func(t *testing.T) {
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 96 * mib })
			s.interlock(t, x)
			p := x.python(t, "d33-mappings.py")
			p.Env = x.environment(map[string]string{"KIND": kind})
			e := x.run(t, p)
			u := x.usage(t)
			t.Logf("%+v %q, kills %d, peak %d MiB", e.Exit, e.Out, u.OOMKills, u.PeakMemory/mib)
			if ends != (u.OOMKills > 0) || !ends && e.Out != "held\n" {
				t.Errorf("got %d kills, exit %+v, %q, want it ended within 96 MiB: %t; stderr %q", u.OOMKills, e.Exit, e.Out, ends, e.Err)
			}
		})
	}
}

// buffersAreMemory: bytes in pipes and Unix sockets count as memory of the sandbox, whether a descriptor, a message or a
// waiting call keeps the pipe or socket. A program may have many pipes and sockets that hold few bytes (D34).
func buffersAreMemory(t *testing.T, s *suite) {
	for kind, mebibytes := range map[string]int{"few": 0, "pipes": 120, "sockets": 240, "closed": 240, "datagrams": 240, "waits": 200} {
		t.Run(kind, func(t *testing.T) {
			if !s.full() && slices.Contains([]string{"sockets", "closed", "datagrams"}, kind) {
				s.lacks(t, "a network namespace of its own")
			}
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 96 * mib })
			s.interlock(t, x)
			p := x.python(t, "d34-buffers.py")
			p.Env = x.environment(map[string]string{"KIND": kind, "MIB": strconv.Itoa(mebibytes)})
			e := x.run(t, p)
			u := x.usage(t)
			t.Logf("%+v %q, kills %d %q, peak %d MiB", e.Exit, e.Out, u.OOMKills, u.Exceeded, u.PeakMemory/mib)
			if ends := kind != "few"; ends != (u.OOMKills > 0) || !ends && e.Out != "held\n" {
				t.Errorf("got %d kills, exit %+v, %q, want it ended within 96 MiB: %t; stderr %q", u.OOMKills, e.Exit, e.Out, ends, e.Err)
			}
			if len(u.Exceeded) == 0 {
				return
			}
			x.sh(t, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done") // bytes of programs that have ended do not count for a later one
			if again := x.usage(t).OOMKills; again != u.OOMKills {
				t.Errorf("a later program: got %d kills, want %d", again, u.OOMKills)
			}
		})
	}
}

// mappingsAreCounted: a sandbox with more than the greatest number of mappings is ended, even if its memory limit is
// large, because the kernel visits each mapping when a process ends (D33).
func mappingsAreCounted(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 1024 * mib })
	s.interlock(t, x)
	p := x.python(t, "d33-mappings.py")
	p.Env = x.environment(map[string]string{"KIND": "most"})
	s.endedFor(t, x, p, "mappings")
}

// tablesWithoutMemoryAreCounted: page tables that name pages without memory take long to visit when their
// process ends, and in calls that no signal ends. A sandbox that has many is ended before it has so many that
// its end takes long. It may have fewer if it has more tasks (D25).
func tablesWithoutMemoryAreCounted(t *testing.T, s *suite) {
	for kind, want := range map[string]string{"one": "64 MiB of page tables without memory", "tasks": "multiplied by its tasks"} {
		t.Run(kind, func(t *testing.T) {
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 512 * mib })
			s.interlock(t, x)
			p := x.python(t, "d25-empty-tables.py")
			p.Env = x.environment(map[string]string{"KIND": kind})
			s.endedFor(t, x, p, want)
		})
	}
}

// connectionBuffersAreSmall: the kernel has one pool for the buffers of all TCP connections of the
// host. So the buffers of a sandbox are small, whether its network namespace is new, kept from a
// closed sandbox, or has a network.
func connectionBuffersAreSmall(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a network namespace of its own")
	}
	check := func(x *box, when string) {
		if got, want := x.run(t, x.python(t, "d29-connection-pools.py")).Out, "buffers small\nqueue 129\nwaiting small\n"; got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	x := s.open(t)
	check(x, "first sandbox")
	for i := range 3 { // later sandboxes may get a kept network namespace, if no socket was made in it
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		x = s.open(t)
		if got := x.sh(t, "echo on"); got != "on\n" {
			t.Fatalf("sandbox %d: got %q, want on", i+1, got)
		}
	}
	if _, ok := x.Sandbox.(backend.Networker); ok {
		x.network(t)
	}
	check(x, "later sandbox")
}

// goingOn holds programs that request what a sandbox refuses, or nearly so, and must continue. Each
// prints "fine".
var goingOn = map[string]struct{ language, program string }{
	"Asyncio": {"python", `
import asyncio
async def main():
    async def echo(r, w):
        w.write(await r.read(4)); await w.drain(); w.close()
    s = await asyncio.start_server(echo, "localhost", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname()[:2])
    w.write(b"fine"); print((await r.read()).decode())
asyncio.run(main())`},
	"AsyncioDatagrams": {"python", `
import asyncio
class P(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, d, a): print(d.decode()); done.set()
async def main():
    global done
    done = asyncio.Event(); loop = asyncio.get_running_loop()
    t, _ = await loop.create_datagram_endpoint(P, ("127.0.0.1", 0))
    u, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=t.get_extra_info("sockname"))
    u.sendto(b"fine"); await done.wait()
asyncio.run(main())`},
	"HTTPServer": {"python", `
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"fine")
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:%d/" % s.server_port).read().decode())`},
	"SocketOptions": {"python", `
import socket
s = socket.socket()
for level, option, value in [(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1), (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20), (socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60), (socket.IPPROTO_IP, socket.IP_TOS, 16)]:
    s.setsockopt(level, option, value)
s.settimeout(1)
print("fine")`},
	"Multiprocessing": {"python", `
import multiprocessing as m
def f(x): return x * x
with m.get_context("fork").Pool(2) as p: p.map(f, range(4))
q = m.get_context("fork").Queue(); q.put("fine"); print(q.get())`},
	"SQLite": {"python", `
import os, sqlite3
a = sqlite3.connect(os.environ["WORK"] + "/d", timeout=0); b = sqlite3.connect(os.environ["WORK"] + "/d", timeout=0)
a.execute("create table t(x)"); a.commit(); a.execute("begin immediate")
try: b.execute("begin immediate"); print("no lock")
except sqlite3.OperationalError: pass
a.commit(); b.execute("pragma journal_mode=wal"); b.execute("insert into t values('fine')"); b.commit()
print(a.execute("select x from t").fetchone()[0])`},
	"FileLocks": {"python", `
import fcntl, os
f = open(os.environ["WORK"] + "/l", "w")
fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(f, fcntl.LOCK_UN)
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(f, fcntl.LOCK_UN)
print("fine")`},
	"Ranks": {"python", `
import os, resource
os.nice(1); os.setpriority(os.PRIO_PROCESS, os.getpid(), min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)
print("fine")`},
	"NodeHTTP": {"node", `
const http = require("http")
const s = http.createServer((q, r) => r.end("fine")).listen(0, "localhost", () =>
    http.get({ port: s.address().port, host: "localhost" }, r => r.on("data", d => { console.log(String(d)); s.close() })))`},
	"NodeSockets": {"node", `
const net = require("net"), dgram = require("dgram")
const u = dgram.createSocket({ type: "udp4", recvBufferSize: 1 << 20, reuseAddr: true })
u.on("message", m => { console.log(String(m)); u.close() })
u.bind(0, "127.0.0.1", () => {
    u.setTTL(3)
    const s = net.createServer(c => c.pipe(c)).listen(0, "127.0.0.1", () => {
        const c = net.connect({ port: s.address().port, host: "127.0.0.1", noDelay: true, keepAlive: true })
        c.on("data", d => { c.end(); s.close(); u.send(d, u.address().port) }); c.write("fine")
    })
})`},
	"NodeInterfaces": {"node", `
const os = require("os")
try { os.networkInterfaces(); console.log("told") } catch (e) { console.log(e.code === "ERR_SYSTEM_ERROR" ? "fine" : e.code) }`},
	"NodeLookup": {"node", `
const dns = require("dns")
dns.lookup("localhost", { all: true, hints: dns.ADDRCONFIG }, (e, a) => console.log(e ? e.code : a.length ? "fine" : "none"))`},
	"NodeRank": {"node", `const os = require("os"); os.setPriority(Math.min(19, os.getPriority() + 1)); console.log("fine")`},
}

// programsGoOn: common programs do not fail because of the requests that a sandbox refuses.
func programsGoOn(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a network namespace of its own")
	}
	for name, g := range goingOn {
		t.Run(name, func(t *testing.T) {
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 1 << 30 })
			var p backend.Process
			if g.language == "node" {
				testkit.Need(t, "node", s.o.Node != "", "no interpreter that a sandbox can see")
				p = backend.Process{Argv: []string{s.o.Node, "-e", g.program}}
			} else {
				p = x.python(t, g.program)
			}
			if e := x.run(t, p); strings.TrimSpace(e.Out) != "fine" {
				t.Errorf("got %q (exit %+v, stderr %q), want \"fine\"", e.Out, e.Exit, e.Err)
			}
		})
	}
	for name, line := range map[string]string{
		"NPM":  "command -v npm >/dev/null || { echo absent; exit; }; cd /mnt/data && npm --version >/dev/null && npm ls >/dev/null && echo fine",
		"Git":  "command -v git >/dev/null || { echo absent; exit; }; cd /mnt/data && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline >/dev/null && echo fine",
		"Curl": `command -v curl >/dev/null || { echo absent; exit; }; python3 -c 'import http.server as h; s = h.HTTPServer(("127.0.0.1", 8811), h.SimpleHTTPRequestHandler); print("up", flush=True); s.handle_request()' > u 2>/dev/null & until grep -q up u 2>/dev/null; do :; done; curl -sf http://localhost:8811/ >/dev/null && echo fine`,
	} {
		t.Run(name, func(t *testing.T) {
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 1 << 30 })
			e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", line}})
			out := strings.TrimSpace(e.Out)
			testkit.Need(t, strings.ToLower(name), out != "absent", "no such program that a sandbox can see")
			if out != "fine" {
				t.Errorf("got %q (exit %+v, stderr %q), want \"fine\"", e.Out, e.Exit, e.Err)
			}
		})
	}
}
