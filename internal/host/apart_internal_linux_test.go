package host

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// TestACommandDoesNotChangeTheKernel: a command of a server of root has no capability with which it could get around Landlock,
// reach the networks of sandboxes, read what others send, set the clock, or close files to the server.
func TestACommandDoesNotChangeTheKernel(t *testing.T) {
	e := runWith(t, "cat", job{words: []string{"cat", "/proc/self/status"}, last: true})
	_, rest, _ := strings.Cut(string(e.stdout), "CapPrm:\t")
	line, _, _ := strings.Cut(rest, "\n")
	has, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatalf("got %q: %v", e.stdout, err)
	}
	for _, c := range []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN, unix.CAP_SYS_RAWIO, unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_TIME, unix.CAP_LINUX_IMMUTABLE} {
		if has&(1<<c) != 0 {
			t.Errorf("it has capability %d of %#x", c, has)
		}
	}
}

// TestACommandEntersNoSandbox: a command enters no namespace. The server's user has all rights in the user namespaces of sandboxes.
func TestACommandEntersNoSandbox(t *testing.T) {
	e := runWith(t, "perl", job{words: []string{"perl", "-e", fmt.Sprintf(`for (%d, %d) { syscall($_, -1, 0, 0); print $!{EACCES} ? "refused " : "no " }`,
		unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT)}, last: true})
	if string(e.stdout) != "refused refused " {
		t.Errorf("got %q, %.200q, want both calls refused", e.stdout, e.stderr)
	}
}

// TestACommandMakesNoUserNamespaces: a command makes no user namespace, in which it could make a network that it ties to those of
// sandboxes. Other processes and threads it may start.
func TestACommandMakesNoUserNamespaces(t *testing.T) {
	code := fmt.Sprintf(`for ([%[1]d, %[3]d], [%[1]d, %[4]d], [%[2]d, %[3]d | %[5]d]) { my $p = syscall($_->[0], $_->[1], 0, 0, 0, 0);
		exit if $_->[0] == %[2]d && !$p; print $!{EACCES} ? "refused " : "made one " } print syscall(%[1]d, %[6]d) ? "no" : "own"`,
		unix.SYS_UNSHARE, unix.SYS_CLONE, unix.CLONE_NEWUSER, unix.CLONE_NEWUSER|unix.CLONE_NEWNET, unix.SIGCHLD, unix.CLONE_FS)
	for _, last := range []bool{true, false} {
		e := runWith(t, "perl", job{words: []string{"perl", "-e", "$| = 1; " + code}, last: last})
		if string(e.stdout) != "refused refused refused own" {
			t.Errorf("got %q, %.200q, want no user namespace", e.stdout, e.stderr)
		}
	}
}

// TestACommandTakesNoLease: a command takes no lease of a file of the server, which could not open it then. Landlock has no rule for
// leases, nor for files that are opened neither to be read nor to be written.
func TestACommandTakesNoLease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const neither = 3
	code := fmt.Sprintf(`my $n = %[2]q; my $f = syscall(%[1]d, -100, $n, %[3]d, 0); print $f < 0 ? "closed " : "open "; $f = 0 if $f < 0;
		syscall(%[4]d, $f, %[5]d, %[6]d); print $!{EACCES} ? "refused " : "lease "; print syscall(%[4]d, 0, %[7]d, 0) < 0 ? "no" : "own"`,
		unix.SYS_OPENAT, file, neither, unix.SYS_FCNTL, unix.F_SETLEASE, unix.F_WRLCK, unix.F_GETFD)
	for _, last := range []bool{true, false} {
		e := runWith(t, "perl", job{words: []string{"perl", "-e", code}, reads: []string{file}, last: last})
		if _, got, _ := strings.Cut(string(e.stdout), " "); got != "refused own" {
			t.Errorf("got %q, %.200q, want no lease", e.stdout, e.stderr)
		}
	}
}

// TestACommandTracesNothing: a process that left the command's group and traced the command could hide the command's end from the
// server, which would wait for ever.
func TestACommandTracesNothing(t *testing.T) {
	e := runWith(t, "perl", job{words: []string{"perl", "-e", fmt.Sprintf(`syscall(%d, %d, getppid(), 0, 0); print $!{EACCES} ? "refused" : "$!"`,
		unix.SYS_PTRACE, unix.PTRACE_SEIZE)}, last: true})
	if string(e.stdout) != "refused" {
		t.Errorf("got %q, %.200q, want that tracing is refused", e.stdout, e.stderr)
	}
}

// TestACommandLeavesTheServerNoChildren: a command cannot make its parent, the server, the parent of a process that it starts. The server
// does not wait for such a process, whose process id would be taken until the server ends.
func TestACommandLeavesTheServerNoChildren(t *testing.T) {
	code := fmt.Sprintf(`my $p = syscall(%d, %d, 0, 0, 0, 0); exit if !$p; print $!{EACCES} ? "refused" : "child of %d";
		syscall(%d, 0, 0); print $!{ENOSYS} ? " clone3\n" : " no\n"; $p = fork; exit if !$p; waitpid $p, 0; print "own\n"`,
		unix.SYS_CLONE, unix.CLONE_PARENT|unix.SIGCHLD, os.Getpid(), unix.SYS_CLONE3)
	e := runWith(t, "perl", job{words: []string{"perl", "-e", "$| = 1; " + code}, last: true})
	if string(e.stdout) != "refused clone3\nown\n" {
		t.Errorf("got %q, %.200q, want children of its own alone", e.stdout, e.stderr)
	}
}

// TestAProgramThatCannotBeKeptApartIsNotExecuted: the server cannot make a program of 32 bits enter a domain of its own.
func TestAProgramThatCannotBeKeptApartIsNotExecuted(t *testing.T) {
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	testkit.Need(t, "Landlock", int(abi) > 0, "a kernel with Landlock")
	const at = 0x8048000
	code := []byte{0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80} // exit(0)
	head := []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x03\x00")
	for _, v := range []uint32{1, at + 84, 52, 0, 0, 52 | 32<<16, 1, 0, 1, 0, at, at, 84 + 9, 84 + 9, 5, 4096} { // the rest of the header, and one segment
		head = binary.LittleEndian.AppendUint32(head, v)
	}
	j := job{path: filepath.Join(t.TempDir(), "old"), words: []string{"old"}, dir: "/", timeout: time.Minute}
	if err := os.WriteFile(j.path, append(head, code...), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if j.file, err = os.Open(j.path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.file.Close() }()
	e, err := execute(t.Context(), j)
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("the kernel executes no programs of 32 bits for x86")
	}
	if !errors.Is(err, errForeign) {
		t.Errorf("got %+v, %v, want that it is not executed", e, err)
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
