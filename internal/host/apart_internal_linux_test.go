package host

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// runWith executes a program with Landlock, and returns how it ended.
func runWith(t *testing.T, name string, j job) ended {
	t.Helper()
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	testkit.Need(t, "Landlock", int(abi) > 0, "a kernel with Landlock")
	p, err := find(name)
	if err != nil || p.path == "" {
		t.Fatalf("there is no %s: %v", name, err)
	}
	if j.file, err = p.open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.file.Close() }()
	j.path, j.dir, j.env, j.timeout = p.path, "/", environment(nil), time.Minute
	if j.last {
		j.execs = p.execs
	}
	e, err := execute(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestACommandDoesNotReachTheServer: a command neither reads the memory of the process that has started it nor sends it signals, also
// not through the thread that is confined as the command is. It changes no limits but its own.
func TestACommandDoesNotReachTheServer(t *testing.T) {
	own := "/proc/" + strconv.Itoa(os.Getpid())
	script := "for t in " + own + " " + own + "/task/*; do cat $t/environ $t/maps; kill -0 ${t##*/} && echo signal; done 2>/dev/null; prlimit --pid " +
		strconv.Itoa(os.Getpid()) + " --core 2>/dev/null; kill -0 $$ && ulimit -c 0 && echo own"
	e := runWith(t, "sh", job{words: []string{"sh", "-c", script}})
	if string(e.stdout) != "own\n" || !slices.Contains(e.walls, wallApart) {
		t.Errorf("got %.200q with the walls %q, want no reach to the server", e.stdout, e.walls)
	}
}

// TestACommandDoesNotChangeTheKernel: a command of a server of root has no capability with which it could get around Landlock.
func TestACommandDoesNotChangeTheKernel(t *testing.T) {
	e := runWith(t, "cat", job{words: []string{"cat", "/proc/self/status"}, last: true})
	_, rest, _ := strings.Cut(string(e.stdout), "CapPrm:\t")
	line, _, _ := strings.Cut(rest, "\n")
	has, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatalf("got %q: %v", e.stdout, err)
	}
	for _, c := range []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN, unix.CAP_SYS_RAWIO, unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_BPF} {
		if has&(1<<c) != 0 {
			t.Errorf("it has capability %d of %#x", c, has)
		}
	}
}

// TestANamedDeviceIsClosed: a command whose words name a file of /dev reads only the harmless ones.
func TestANamedDeviceIsClosed(t *testing.T) {
	f, err := os.CreateTemp("/dev/shm", "sandboxmcp-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	if _, err = f.WriteString("shared"); err != nil {
		t.Fatal(err)
	}
	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, p := range ofPrograms() {
		programs = append(programs, plainfile.Unlinked(p))
	}
	for _, only := range []string{f.Name(), filepath.Dir(f.Name())} {
		e := runWith(t, "head", job{words: []string{"head", "-qc", "1", "/dev/zero", f.Name()}, only: append(programs, only), last: true})
		if string(e.stdout) != "\x00" {
			t.Errorf("with %s: got %q, want /dev/zero alone", only, e.stdout)
		}
	}
}
