package jail

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketThatOutlivesItsSandbox: the kernel does not list Unix sockets, so a later sandbox gets a network
// namespace only if none is left in it. One that was sent to another process is left. A new namespace then takes its place.
func TestSocketThatOutlivesItsSandbox(t *testing.T) {
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("no python")
	}
	cfg := testConfig(t)
	cfg.Keep = 2
	j, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	const pass = "import _socket as s\na = s.socket(s.AF_UNIX, s.SOCK_STREAM, 0)\n" + // descriptor 3 is a socket of ours
		"s.socket(s.AF_UNIX, s.SOCK_SEQPACKET, 0, 3).sendmsg([b'x'], [(1, 1, a.fileno().to_bytes(4, 'little'))])"
	for _, c := range []struct {
		name, program string
		received      int
		again         bool
	}{
		{"None", "pass", 0, true},
		{"Closed", "import _socket as s\ns.socket(s.AF_UNIX, s.SOCK_STREAM, 0)", 0, true},
		{"Alive", pass, 1, false},
		{"AfterIt", "pass", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := made(t, j)
			ours, theirs, err := pair()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(ours)
			null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Start(Command{Argv: []string{python, "-S", "-I", "-c", c.program}, Dir: "/", Files: []int{null, null, null, theirs}})
			closeAll(null, theirs)
			if err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if e, err := p.Exit(); err != nil || e.Status.ExitStatus() != 0 {
				t.Fatalf("the program: got %v, %v; want exit 0", e.Status, err)
			}
			var fds []int
			if c.received > 0 {
				var b [8]byte
				if _, fds, err = receive(ours, b[:]); err != nil || len(fds) != c.received {
					t.Fatalf("received: got %d descriptors, %v; want the expected number", len(fds), err)
				}
			}
			defer closeAll(fds...)
			before := networkOf(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			next := made(t, j)
			if again := networkOf(t, next) == before; again != c.again {
				t.Errorf("the next sandbox has the same network namespace: %v, want %v", again, c.again)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
			if got := j.networks.Len(); got != 1 {
				t.Errorf("%d network namespaces are kept, want 1", got)
			}
		})
	}
}

// networkOf returns the network namespace of a sandbox.
func networkOf(t *testing.T, s *Slot) string {
	t.Helper()
	network, err := os.Readlink("/proc/" + strconv.Itoa(s.PID()) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// TestForksTellOfTheirSockets: the filter of a fork notifies init, too. So a network namespace in
// which a fork made no network socket is kept, and another is not.
func TestForksTellOfTheirSockets(t *testing.T) {
	cfg := testConfig(t)
	if !cfg.Notices {
		t.Skip("calls that wait cannot be killed before Linux 5.19")
	}
	cfg.Keep = 2
	j, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	z := testZygote(t, j)
	for _, c := range []struct {
		program string
		want    int
	}{
		{"import _socket as s\ns.socket(s.AF_INET, s.SOCK_STREAM, 0).close()\nprint('made')", 0},
		{"import _socket as s\ns.socket(s.AF_UNIX, s.SOCK_STREAM, 0).close()\nprint('made')", 1},
	} {
		if out, _ := runs(t, j, z, c.program); out != "made\n" {
			t.Errorf("got output %q, want made", out)
		}
		if got := j.networks.Len(); got != c.want {
			t.Errorf("%s: %d network namespaces are kept, want %d", c.program, got, c.want)
		}
	}
}
