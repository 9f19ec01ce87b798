package process_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func noPool(c *process.Config) { c.NoPool = true }

func spec(id string) backend.Spec {
	return backend.Spec{ID: id, MemoryBytes: 96 << 20, CPUCores: 1, MaxTasks: 64, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20}
}

// tenant opens a sandbox, runs a Python program there and closes it. It tells
// what it printed and took.
func tenant(t *testing.T, b backend.Backend, program string) (string, backend.Usage) {
	t.Helper()
	sb, err := b.Open(t.Context(), spec("tenant"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if u := usage(t, sb); u.OOMKills != 0 || u.PeakMemory > 4<<20 || u.CPU > 50*time.Millisecond {
		t.Errorf("usage before anything ran: got %+v, want nearly none", u)
	}
	var out, errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{
		Argv: []string{python(), "-S", "-I", backend.ProgramDir + "/main.py"}, Env: []string{"PATH=/usr/bin:/bin"},
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(program)}}, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken := usage(t, sb)
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("stderr: %s", errs.String())
	}
	return out.String(), taken
}

// look prints all that a program can read of its network namespace, without a
// socket, and without what the kernel counts for the whole machine. The last
// line is the number of its namespace.
const look = `
import os, re
machine = {'softnet_stat', 'protocols', 'ptype', 'psched', 'rt_cache', 'netlink', 'hci', 'stat'}
for d, _, names in sorted(os.walk('/proc/self/net')):
    for n in sorted(names):
        if n in machine or n.startswith('rpc') or d.startswith('/proc/self/net/stat'): continue
        try: text = open(os.path.join(d, n)).read()
        except OSError as e: text = e.strerror
        text = re.sub(r'(orphan|alloc|mem|memory) \d+', r'\1', text)
        if n == 'fib_triestat': text = ''
        for line in text.splitlines(): print(d + '/' + n, line)
print(os.readlink('/proc/self/ns/net'))
`

// tenants are what the one before did; sockets tells that it made one of the network.
var tenants = []struct {
	name, program, want string
	sockets             bool
}{
	{"Harmless", "print('done')", "done\n", false},
	{"ReadsItsNetwork", look, "", false},
	{"OutOfMemory", "b = bytearray(300 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1", "", false},
	{"ManyTasks", "import _thread, time\n_thread.stack_size(1 << 16)\nfor i in range(40): _thread.start_new_thread(time.sleep, (9,))\nprint('done')", "done\n", false},
	{"FillsItsFiles", "open('/mnt/data/f', 'wb').write(b'x' * 1000000)\nprint('done')", "done\n", false},
	{"MakesASocketOnly", "import _socket as s\ns.socket(s.AF_INET, s.SOCK_DGRAM, 0)\nprint('done')", "done\n", true},
	{"Listens", "import _socket as s\na = s.socket(s.AF_INET, s.SOCK_STREAM, 0)\na.bind(('127.0.0.1', 8080))\na.listen(5)\nprint('done')", "done\n", true},
	{"LeavesTimeWait", `import _socket as s
a = s.socket(s.AF_INET, s.SOCK_STREAM, 0)
a.bind(('127.0.0.1', 8080))
a.listen(5)
b = s.socket(s.AF_INET, s.SOCK_STREAM, 0)
b.connect(('127.0.0.1', 8080))
fd, _ = a._accept()
b.close()
import os
os.close(fd)
print(open('/proc/self/net/sockstat').read().count(' tw 1 '))`, "1\n", true},
	{"SendsOnLoopback", "import _socket as s\na = s.socket(s.AF_INET, s.SOCK_DGRAM, 0)\na.sendto(b'x', ('127.0.0.1', 9))\nprint('done')", "done\n", true},
	{"FailsOutwards", "import _socket as s\na = s.socket(s.AF_INET, s.SOCK_STREAM, 0)\nprint(a.connect_ex(('192.0.2.1', 80)))", "101\n", true},
	{"TriesToJoinAGroup", "import _socket as s\na = s.socket(s.AF_INET, s.SOCK_DGRAM, 0)\ntry: a.setsockopt(0, 35, bytes([239, 1, 2, 3, 127, 0, 0, 1]))\nexcept OSError as e: print(e.errno)", "92\n", true},
	{"AbstractSocket", "import _socket as s\na = s.socket(s.AF_UNIX, s.SOCK_STREAM, 0)\na.bind(b'\\0here')\na.listen(1)\nprint('done')", "done\n", false},
	{"SendsASocketToItself", "import _socket as s, _thread\na, b = s.socketpair(s.AF_UNIX, s.SOCK_STREAM, 0)\na.sendmsg([b'x'], [(1, 1, b.fileno().to_bytes(4, 'little'))])\nb.sendmsg([b'x'], [(1, 1, a.fileno().to_bytes(4, 'little'))])\nprint('done')", "done\n", true},
	{"FromAThreadAndAChild", "import os, _socket as s\nif os.fork() == 0:\n    s.socket(s.AF_INET6, s.SOCK_STREAM, 0)\n    os._exit(0)\nos.wait()\nprint('done')", "done\n", true},
}

// TestNextTenantSeesNothing compares what a sandbox finds after each of the
// tenants with what one finds that shares nothing with anybody.
func TestNextTenantSeesNothing(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	fresh := newBackend(noPool)(t)
	defer func() { _ = fresh.Close(t.Context()) }()
	want, wantUsage := tenant(t, fresh, look)
	wantText, _ := split(want)
	again, _ := tenant(t, fresh, look)
	if got, _ := split(again); got != wantText {
		t.Fatalf("two new sandboxes differ (-first +second):\n%s", cmp.Diff(wantText, got))
	}
	if !strings.Contains(wantText, "/net/snmp ") || !strings.Contains(wantText, "/net/dev ") {
		t.Fatalf("nothing was looked at: %.200s", wantText)
	}
	for _, c := range tenants {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			out, _ := tenant(t, b, c.program)
			if c.want != "" && out != c.want {
				t.Fatalf("the first tenant printed %q, want %q", out, c.want)
			}
			kept := 1
			if c.sockets {
				kept = 0
			}
			if got := pool(b)["network_namespaces"]; got != kept && c.name != "SendsASocketToItself" { // the kernel may be quick or late to find those

				t.Errorf("%d network namespaces are kept, want %d", got, kept)
			}
			groups := pool(b)["cgroups"]
			t.Logf("%d control groups kept", groups)
			got, usage := tenant(t, b, look)
			text, _ := split(got)
			if text != wantText {
				t.Errorf("the second tenant sees something (-new +after):\n%s", cmp.Diff(strings.Split(wantText, "\n"), strings.Split(text, "\n")))
			}
			if usage.OOMKills != 0 || usage.PeakTasks != wantUsage.PeakTasks || usage.PeakMemory > 2*wantUsage.PeakMemory+4<<20 || usage.PeakMemory < wantUsage.PeakMemory/2 || usage.CPU > 4*wantUsage.CPU {
				t.Errorf("the second tenant's usage is %+v, a new sandbox's %+v", usage, wantUsage)
			}
		})
	}
}

func split(out string) (text, namespace string) {
	out = strings.TrimSpace(out)
	i := strings.LastIndexByte(out, '\n')
	return out[:i+1], out[i+1:]
}

// usage is what a sandbox has taken.
func usage(t *testing.T, sb backend.Sandbox) backend.Usage {
	t.Helper()
	u, err := sb.Usage(t.Context())
	if err != nil {
		t.Errorf("Usage: got %v, want nil", err)
	}
	return u
}

func pool(b backend.Backend) map[string]int { return b.(backend.Pooler).Pool() }

// TestUsedAgain: what a sandbox leaves is used for a later one, and never for two at once.
func TestUsedAgain(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	const which = "import os\nprint(os.readlink('/proc/self/ns/net'))"
	first, _ := tenant(t, b, which)
	second, _ := tenant(t, b, which)
	if first != second {
		t.Errorf("a namespace in which nothing happened: got %s, then %s; want the same used again", first, second)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	open := make([]backend.Sandbox, 6)
	for i := range open {
		wg.Go(func() {
			sb, err := b.Open(t.Context(), spec(fmt.Sprintf("many%d", i)))
			if err != nil {
				t.Error(err)
				return
			}
			open[i] = sb
			var out bytes.Buffer
			r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-c", which}, Stdout: &out})
			if err == nil {
				_, err = r.Wait(t.Context())
			}
			if err == nil {
				err = sb.Kill(t.Context())
			}
			if err == nil {
				err = r.Drain(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			seen[out.String()]++
			mu.Unlock()
		})
	}
	wg.Wait()
	for _, sb := range open {
		if sb != nil {
			_ = sb.Close(t.Context())
		}
	}
	if len(seen) != len(open) {
		t.Errorf("%d sandboxes at once: got %d network namespaces, %v; want one for each", len(open), len(seen), seen)
	}
}

// TestPoolIsBounded: many sandboxes at once leave no more than the bound of the pool, and
// Close leaves nothing.
func TestPoolIsBounded(t *testing.T) {
	before := backendtest.Count(t)
	one, other := newBackend()(t), newBackend()(t)
	fill := func(b backend.Backend, n int) {
		var open []backend.Sandbox
		for i := range n {
			sp := spec(fmt.Sprintf("fill%d", i))
			sp.WorkInodes += int64(i) // no shape twice, so that none is made ready
			sb, err := b.Open(t.Context(), sp)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, sb)
		}
		for _, sb := range open {
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	fill(one, 12)
	fill(other, 2)
	got := pool(one)
	if got["network_namespaces"] != 8 || got["cgroups"] > 8 {
		t.Errorf("after twelve at once %v is kept, want 8 of each", got)
	}
	if got := pool(other); got["network_namespaces"] != 2 {
		t.Errorf("the other backend keeps %v, want 2", got)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]int{"cgroups": 0, "imports": 0, "network_namespaces": 0, "processes_ahead": 0, "slots_ready": 0, "zygotes": 0}, pool(one)); diff != "" {
		t.Errorf("after Close (-want +got):\n%s", diff)
	}
	fill(other, 1) // it goes on
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	before.Same(t)
}

// TestPoolOff: a backend without a pool keeps nothing.
func TestPoolOff(t *testing.T) {
	b := newBackend(noPool)(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("off"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]int{"cgroups": 0, "imports": 0, "network_namespaces": 0, "processes_ahead": 0, "slots_ready": 0, "zygotes": 0}, pool(b)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// TestBuilderTakesItsNetworksAlong: network namespaces of a builder that has ended are not
// kept.
func TestBuilderTakesItsNetworksAlong(t *testing.T) {
	had := childrenOf(os.Getpid())
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	open := func() {
		t.Helper()
		sb, err := b.Open(t.Context(), spec("die"))
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	open()
	before := backendtest.CountBeside(t, b)
	open()
	if got := pool(b)["network_namespaces"]; got != 1 {
		t.Fatalf("%d network namespaces kept, want 1", got)
	}
	for _, pid := range childrenOf(os.Getpid()) {
		if !slices.Contains(had, pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	testkit.UntilEqual(t, "network namespaces kept", 0, func() int { return pool(b)["network_namespaces"] })
	open()
	// another builder is there, in the place of the dead one
	if after := backendtest.CountBeside(t, b); after.Descriptors != before.Descriptors || len(after.Processes) != len(before.Processes) {
		t.Errorf("with another builder: want %d descriptors and %d processes as before, got %d and %d", before.Descriptors, len(before.Processes), after.Descriptors, len(after.Processes))
	}
}

// BenchmarkOpenClose is what a sandbox costs, with what the one before left and without.
func BenchmarkOpenClose(b *testing.B) {
	for name, change := range map[string][]func(*process.Config){"Pool": nil, "NoPool": {noPool}} {
		b.Run(name, func(b *testing.B) {
			be := newBackend(change...)(b)
			defer func() { _ = be.Close(b.Context()) }()
			if sb, err := be.Open(b.Context(), spec("first")); err == nil {
				_ = sb.Close(b.Context())
			}
			open, i := time.Duration(0), 0
			for b.Loop() {
				i++
				at := time.Now()
				sb, err := be.Open(b.Context(), spec(fmt.Sprintf("bench%d", i)))
				if err != nil {
					b.Fatal(err)
				}
				open += time.Since(at)
				if err := sb.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(open.Microseconds())/float64(i), "µs-open/op")
		})
	}
}
