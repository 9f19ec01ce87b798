package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// held is a cell that leaves a secret in every place that a session has.
const held = `
import ctypes, mmap, os, socket, subprocess, sys
secret = 'secret-' + 'of-another'
for d in '/mnt/data', '/tmp', '/dev/shm':
    with open(d + '/' + secret, 'w') as f: f.write(secret)
os.environ['HELD'] = secret
try: shared = mmap.mmap(-1, 4096); shared.write(secret.encode())
except OSError: pass  # where nothing counts such memory there is none
child = subprocess.Popen(['sleep', '600'], env={'HELD': secret})
libc = ctypes.CDLL(None, use_errno=True)
ipc = libc.shmget(0x5ec3e7, 4096, 0o1666)
key = libc.syscall(248, b'user', secret.encode(), secret.encode(), len(secret), ctypes.c_int(-4))
a = socket.socket(socket.AF_UNIX); a.bind('\0' + secret); a.listen()
p = socket.socket(socket.AF_UNIX); p.bind('/tmp/held.sock'); p.listen()
s = socket.create_server(('127.0.0.1', 5177))
c = socket.create_connection(('127.0.0.1', 5177)); s.accept()[0].close(); c.close()
print(os.path.exists('/tmp/' + secret), len(open('/proc/net/tcp').readlines()) > 1)
`

// searched is a cell that looks for it, and for what is the server's, and prints what it found.
const searched = `
import ctypes, os, socket
secret = 'secret-' + 'of-another'
found = []
def note(what, f):
    try: r = f()
    except OSError: return
    if r: found.append((what, r))
def text(name):
    with open(name, 'rb') as f: return f.read().decode('latin-1')
for top in '/mnt', '/tmp', '/dev/shm', '/run', '/var', '/home', '/root', '/opt':
    for d, dirs, names in os.walk(top):
        found += [('file', d + '/' + n) for n in names + dirs if secret in n or n.endswith('.sock')]
me = {1, os.getpid(), os.getppid()}
for p in range(1, 70000):
    note('process', lambda: os.kill(p, 0) is None and p not in me and p)
for p in [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]:
    for n in 'environ', 'cmdline', 'maps', 'comm': note(n, lambda: secret in text('/proc/%s/%s' % (p, n)))
    for n in 'root', 'cwd': note(n, lambda: os.listdir('/proc/%s/%s/' % (p, n)))
    note('memory', lambda: open('/proc/%s/mem' % p, 'r+b'))
note('environment', lambda: [v for v in os.environ.values() if secret in v])
def connect(family, address):
    s = socket.socket(family); s.settimeout(1); s.connect(address); return True
note('abstract', lambda: connect(socket.AF_UNIX, '\0' + secret))
note('loopback', lambda: connect(socket.AF_INET, ('127.0.0.1', 5177)))
note('port', lambda: socket.create_server(('127.0.0.1', 5177)).close())
for n in 'tcp', 'tcp6', 'udp': note(n, lambda: [l for l in text('/proc/net/' + n).splitlines()[1:] if ':1439' in l])
note('unix', lambda: [l for l in text('/proc/net/unix').splitlines()[1:] if 'secret' in l or 'sandboxmcp' in l])
libc = ctypes.CDLL(None, use_errno=True)
note('ipc', lambda: libc.shmget(0x5ec3e7, 4096, 0) >= 0)
note('ipc list', lambda: text('/proc/sysvipc/shm').splitlines()[1:])
note('key', lambda: libc.syscall(249, b'user', secret.encode(), 0, 0) > 0)
note('keys', lambda: secret in text('/proc/keys'))
for d in STATE:
    note('state', lambda: os.listdir(d))
    note('state file', lambda: open(d + '/sandboxmcp.db', 'rb'))
    for n in os.listdir(d) if os.path.isdir(d) else []: note('socket of the server', lambda: connect(socket.AF_UNIX, d + '/' + n))
print(found)
`

func searchOf(state string) string {
	return strings.Replace(searched, "STATE", "["+quoted(state)+"]", 1)
}

// TestSessionsReachNothingOfEachOther, alive at the same time, of one namespace
// and of two, by cells and by single runs beside them.
func TestSessionsReachNothingOfEachOther(t *testing.T) {
	state := t.TempDir() + "/state"
	e := openReal(t, at(state))
	needs(t, e, sandboxmcp.Python)
	run := func(ns sandboxmcp.Namespace, id sandboxmcp.SessionID, code string) string {
		r := in(id, code)
		r.Language = sandboxmcp.Python
		res := execute(t, e, r, of(ns))
		return res.Stdout + res.Stderr
	}
	owner := create(t, e, sandboxmcp.SessionSpec{})
	if got := run("", owner, held); got != "True True\n" {
		t.Fatalf("nothing is held: %q", got)
	}
	if got := run("", owner, searchOf(state)); !strings.Contains(got, "'file'") || !strings.Contains(got, "'abstract'") || !strings.Contains(got, "'loopback'") || !strings.Contains(got, "'environment'") {
		t.Fatalf("its owner does not find it, so that nobody would: %q", got)
	}
	for _, ns := range []sandboxmcp.Namespace{"", "other"} {
		id := create(t, e, sandboxmcp.SessionSpec{}, of(ns))
		if got := run(ns, id, searchOf(state)); got != "[]\n" {
			t.Errorf("a session of namespace %q found %s", ns, got)
		}
		if got := run(ns, "", searchOf(state)); got != "[]\n" {
			t.Errorf("a run of namespace %q found %s", ns, got)
		}
	}
	if got := run("", owner, "print(child.poll(), open('/tmp/' + secret).read() == secret)"); got != "None True\n" {
		t.Errorf("of what was held there is %q", got)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{Namespace: "other"}, sandboxmcp.Request{SessionID: owner, Code: "1"}); sandboxmcp.CodeOf(err) == "" {
		t.Error("a session was used from another namespace")
	}
}

// TestNextTenantFindsNothing: what a session used is given to the next one, which
// finds nothing of the last.
func TestNextTenantFindsNothing(t *testing.T) {
	state := t.TempDir() + "/state"
	e := openReal(t, at(state))
	needs(t, e, sandboxmcp.Python)
	for round := range 6 {
		id := create(t, e, sandboxmcp.SessionSpec{})
		if res := execute(t, e, in(id, searchOf(state))); res.Stdout != "[]\n" {
			t.Errorf("round %d: a session found %s%s", round, res.Stdout, res.Stderr)
		}
		if res := execute(t, e, in(id, held)); res.Stdout != "True True\n" {
			t.Fatalf("nothing is held: %q %q", res.Stdout, res.Stderr)
		}
		if err := e.CloseSession(t.Context(), sandboxmcp.Caller{}, id); err != nil {
			t.Fatal(err)
		}
		if res := execute(t, e, sandboxmcp.Request{Code: searchOf(state), Language: sandboxmcp.Python}); res.Stdout != "[]\n" {
			t.Errorf("round %d: a run found %s%s", round, res.Stdout, res.Stderr)
		}
	}
}
