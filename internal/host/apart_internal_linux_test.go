package host

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
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
	j.path, j.dir, j.env, j.timeout = p.path, cmp.Or(j.dir, "/"), environment(), time.Minute
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
// reach the networks of sandboxes, read what others send, set the clock, close files to the server, raise its limits, or run before others.
func TestACommandDoesNotChangeTheKernel(t *testing.T) {
	e := runWith(t, "cat", job{words: []string{"cat", "/proc/self/status"}, last: true})
	_, rest, _ := strings.Cut(string(e.stdout), "CapPrm:\t")
	line, _, _ := strings.Cut(rest, "\n")
	has, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatalf("got %q: %v", e.stdout, err)
	}
	for _, c := range []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE} {
		has &^= 1 << c
	}
	if has != 0 {
		t.Errorf("it has the capabilities %#x, want none besides those for files, rights, signals and low ports", has)
	}
}

// TestAStackGrowsNotBeyondItsLimit: a command cannot use its stack as memory that its limit of data does not count. The limit that new threads
// have for theirs stays.
func TestAStackGrowsNotBeyondItsLimit(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &own); err != nil {
		t.Fatal(err)
	}
	e := runWith(t, "sh", job{words: []string{"sh", "-c", "ulimit -Hs; ulimit -Ss; ulimit -Ss unlimited 2>/dev/null || echo held"}, last: true})
	want := fmt.Sprintf("%d\n%d\nheld\n", min(own.Max, maxStack)>>10, min(own.Cur, maxStack)>>10)
	if string(e.stdout) != want || !slices.Contains(e.walls, wallRlimits) {
		t.Errorf("got %q with the walls %q, want %q", e.stdout, e.walls, want)
	}
}

// TestACommandEntersNoSandbox: a command enters no namespace. The server's user has all rights in the user namespaces of sandboxes.
func TestACommandEntersNoSandbox(t *testing.T) {
	e := runWith(t, "perl", job{words: []string{"perl", "-e", fmt.Sprintf(`for (%d, %d) { syscall($_, -1, 0, 0); print $!{EPERM} ? "refused " : "no " }`,
		unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT)}, last: true})
	if string(e.stdout) != "refused refused " {
		t.Errorf("got %q, %.200q, want both calls refused", e.stdout, e.stderr)
	}
}

// TestACommandMakesNoUserNamespaces: a command makes no user namespace, in which it could make a network that it ties to those of
// sandboxes. Other processes and threads it may start.
func TestACommandMakesNoUserNamespaces(t *testing.T) {
	code := fmt.Sprintf(`for ([%[1]d, %[3]d], [%[1]d, %[4]d], [%[2]d, %[3]d | %[5]d]) { my $p = syscall($_->[0], $_->[1], 0, 0, 0, 0);
		exit if $_->[0] == %[2]d && !$p; print $!{EPERM} ? "refused " : "made one " } my $p = fork; exit if defined $p && !$p; print defined $p ? "own" : "no"`,
		unix.SYS_UNSHARE, unix.SYS_CLONE, unix.CLONE_NEWUSER, unix.CLONE_NEWUSER|unix.CLONE_NEWNET, unix.SIGCHLD)
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
		syscall(%[4]d, $f, %[5]d, %[6]d); print $!{EPERM} ? "refused " : "lease "; print syscall(%[4]d, 0, %[7]d, 0) < 0 ? "no" : "own"`,
		unix.SYS_OPENAT, file, neither, unix.SYS_FCNTL, unix.F_SETLEASE, unix.F_WRLCK, unix.F_GETFD)
	for _, last := range []bool{true, false} {
		e := runWith(t, "perl", job{words: []string{"perl", "-e", code}, reads: []string{file}, last: last})
		if string(e.stdout) != "closed refused own" {
			t.Errorf("got %q, %.200q, want neither the file opened nor a lease", e.stdout, e.stderr)
		}
	}
}

// TestACommandOfTheSettingsHasOnlyWhatItNeeds: a command of a rule that the settings have by default starts no process, makes no socket unless
// its program needs one, and changes no attributes of files, which Landlock does not hold. No command leaves objects of System V IPC.
func TestACommandOfTheSettingsHasOnlyWhatItNeeds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code := fmt.Sprintf(`use Socket; $| = 1; my $p = fork; exit if defined $p && !$p; print defined $p ? "fork " : $!{EAGAIN} ? "" : "other ";
		print "inet " if socket(S, PF_INET, SOCK_STREAM, 0); print "unix " if socket(S, PF_UNIX, SOCK_STREAM, 0); print "netlink " if socket(S, 16, SOCK_RAW, 0);
		print "packet " if socket(S, PF_INET, SOCK_RAW, 6); chmod 0666, %q; print "setid " if -u %[1]q || chmod(04600, %[1]q) && -u %[1]q;
		syscall(%d, 0, 1, 0); print "ipc " if !$!{ENOSYS}; print "shared " if syscall(%d, 0, 4096, 3, %d, -1, 0) != -1; my $n = "x"; print "file " if syscall(%d, $n, 0) >= 0; open(F, "/dev/null"); print fileno(F)`, file, unix.SYS_MSGGET, unix.SYS_MMAP, unix.MAP_SHARED|unix.MAP_ANONYMOUS, unix.SYS_MEMFD_CREATE)
	const (
		files     = "files: modes, owners and times of files can be changed, because Landlock does not hold them"
		network   = "network and unix sockets: those of the host"
		memory    = "memory: what processes share is not limited"
		processes = "processes: those that leave the command's group outlive it"
		tasks     = "tasks: their number is not limited"
	)
	for _, c := range []struct {
		known  *usual
		want   string
		walls  []string
		weak   []string
		opened os.FileMode
	}{
		{&usual{}, "3", []string{wallExec, wallTasks, wallSockets, wallShared, wallAttributes}, []string{}, 0o600},
		{&usual{sockets: true}, "inet unix netlink 3", []string{wallExec, wallTasks, wallShared, wallAttributes}, []string{network}, 0o600},
		{nil, "fork inet unix netlink shared file 4", []string{wallExec}, []string{processes, network, memory, files}, 0o666},
	} {
		e := runWith(t, "perl", job{words: []string{"perl", "-e", code}, last: true, known: c.known})
		if string(e.stdout) != c.want {
			t.Errorf("with %+v: got %q, %.200q, want %q", c.known, e.stdout, e.stderr, c.want)
		}
		for _, w := range []string{wallExec, wallTasks, wallSockets, wallShared, wallAttributes} {
			if slices.Contains(e.walls, w) != slices.Contains(c.walls, w) || !slices.Contains(e.walls, jail.WallSeccomp) {
				t.Errorf("with %+v: got the walls %q, want of these %q", c.known, e.walls, c.walls)
			}
		}
		if jail.UserTasks() == 0 { // threads are tasks
			c.weak = append(c.weak, tasks)
		}
		if slices.Contains(e.walls, wallApart) && !slices.Equal(e.weak, c.weak) || e.weak == nil {
			t.Errorf("with %+v: got the weaknesses %#v, want %q", c.known, e.weak, c.weak)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != c.opened {
			t.Errorf("with %+v: got the mode %v, %v, want %v", c.known, info.Mode(), err, c.opened)
		}
	}
}

// TestACommandLeavesTheServerTasks: if the kernel limits the tasks of the server's user, a command has a lower limit, so that the server
// starts its threads.
func TestACommandLeavesTheServerTasks(t *testing.T) {
	most := jail.TasksOfOthers()
	if most == 0 {
		e := runWith(t, "cat", job{words: []string{"cat", "/dev/null"}, last: true})
		if !slices.Contains(e.weak, "tasks: their number is not limited") {
			t.Errorf("got the weaknesses %q, want that tasks are not limited", e.weak)
		}
		return
	}
	e := runWith(t, "cat", job{words: []string{"cat", "/proc/self/limits"}, last: true})
	_, rest, _ := strings.Cut(string(e.stdout), "Max processes")
	if f := strings.Fields(rest); len(f) < 2 || f[0] != strconv.FormatUint(most, 10) || f[1] != f[0] {
		t.Errorf("got the limits %.40q, want %d", rest, most)
	}
}

// TestACrashStartsNoProgramOfTheHost: the kernel starts the host's program for core dumps unless the limit is 1.
func TestACrashStartsNoProgramOfTheHost(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		t.Fatal(err)
	}
	want := strconv.FormatUint(min(1, own.Max), 10)
	e := runWith(t, "cat", job{words: []string{"cat", "/proc/self/limits"}, last: true})
	_, rest, _ := strings.Cut(string(e.stdout), "Max core file size")
	if f := strings.Fields(rest); len(f) < 2 || f[0] != want || f[1] != want {
		t.Errorf("got the limits %.40q, want %s", rest, want)
	}
}

// TestNpmMayOpenManyFiles: npm opens the package.json of all packages of a project at once. Node raises its soft limit to the hard one.
func TestNpmMayOpenManyFiles(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	for known, most := range map[*usual]uint64{nil: 1024, {}: 16384} {
		e := runWith(t, "cat", job{words: []string{"cat", "/proc/self/limits"}, last: true, known: known})
		_, rest, _ := strings.Cut(string(e.stdout), "Max open files")
		soft, hard := strconv.FormatUint(min(1024, own.Max), 10), strconv.FormatUint(min(most, own.Max), 10)
		if f := strings.Fields(rest); len(f) < 2 || f[0] != soft || f[1] != hard {
			t.Errorf("with %v: got the limits %.40q, want %s and %s", known, rest, soft, hard)
		}
	}
}

// TestACommandLocksNothingOfServers: a lock that a command takes of the file with the leases of user ids would leave none to servers. Shared locks
// need no right to write.
func TestACommandLocksNothingOfServers(t *testing.T) {
	closed := closedPlaces(newBudget(anyTime, maxLooked), nil)
	if !slices.Contains(closed, runDir) { // also where no server has made it yet
		t.Errorf("got the closed places %q, want %s among them", closed, runDir)
	}
	code := fmt.Sprintf(`print open(F, "<", "%s/uids.lock") ? "opened" : $!{ENOENT} || $!{EACCES} ? "closed" : "$!"`, runDir)
	if e := runWith(t, "perl", job{words: []string{"perl", "-e", code}, reads: closed}); string(e.stdout) != "closed" {
		t.Errorf("got %q, %.200q, want the leases closed", e.stdout, e.stderr)
	}
}

// TestACommandTracesNothing: a process that left the command's group and traced the command could hide the command's end from the
// server, which would wait for ever.
func TestACommandTracesNothing(t *testing.T) {
	e := runWith(t, "perl", job{words: []string{"perl", "-e", fmt.Sprintf(`syscall(%d, %d, getppid(), 0, 0); print $!{EPERM} ? "refused" : "$!"`,
		unix.SYS_PTRACE, unix.PTRACE_SEIZE)}, last: true})
	if string(e.stdout) != "refused" {
		t.Errorf("got %q, %.200q, want that tracing is refused", e.stdout, e.stderr)
	}
}

// TestACommandLeavesTheServerNoChildren: a command cannot make its parent, the server, the parent of a process that it starts. The server
// does not wait for such a process, whose process id would be taken until the server ends.
func TestACommandLeavesTheServerNoChildren(t *testing.T) {
	code := fmt.Sprintf(`my $p = syscall(%d, %d, 0, 0, 0, 0); exit if !$p; print $!{EPERM} ? "refused" : "child of %d";
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

// TestAProgramWhoseWallsFailIsNotExecuted: the server makes a held program call the kernel. If the program is such that this fails, here because it
// begins where nothing can be executed, it does not go on without its walls.
func TestAProgramWhoseWallsFailIsNotExecuted(t *testing.T) {
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	testkit.Need(t, "Landlock", int(abi) > 0, "a kernel with Landlock")
	j := job{path: filepath.Join(t.TempDir(), "odd"), words: []string{"odd"}, dir: "/", timeout: time.Minute}
	whole := elfOf(1, 0, 0, 0)
	for _, v := range []uint64{1 | 4<<32, 0, 0x400000, 0x400000, 120, 120, 4096} { // one segment, which can be read
		whole = binary.LittleEndian.AppendUint64(whole, v)
	}
	if runtime.GOARCH == "arm64" {
		whole[18] = 183
	}
	if err := os.WriteFile(j.path, whole, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if j.file, err = os.Open(j.path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.file.Close() }()
	if e, err := execute(t.Context(), j); !errors.Is(err, errUnwalled) {
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

// TestACommandBeginsInTheDirectoryThatWasJudged: once a command has its thread, the path of its directory is not looked up again. Otherwise a user could exchange a
// directory on the path for a link whose lookup never ends. The child of a fork would wait there, and with it the whole server.
func TestACommandBeginsInTheDirectoryThatWasJudged(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err = os.MkdirAll(top+"/way/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := find("pwd")
	if err != nil || p.path == "" {
		t.Fatalf("there is no pwd: %v", err)
	}
	j := job{path: p.path, words: []string{"pwd", "-P"}, dir: top + "/way/dir", env: environment(), timeout: time.Minute}
	if j.file, err = p.open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.file.Close() }()
	o, err := openFor(j)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	if err = errors.Join(os.Rename(top+"/way", top+"/moved"), os.Symlink(top+"/nowhere", top+"/way")); err != nil {
		t.Fatal(err)
	}
	s, err := newStreams(func() {}, os.Pipe)
	if err != nil {
		t.Fatal(err)
	}
	var e ended
	ownThread(func() {
		if j.dir, err = o.enter(); err == nil {
			e, err = runConfined(j, o, s, &stopper{})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.finish(&e)
	if got := string(e.stdout); got != top+"/moved/dir\n" {
		t.Errorf("got %q, want the directory that was judged", got)
	}
	if _, err = openFor(j); err == nil {
		t.Error("a directory behind a link was opened, want an error")
	}
	if here, err := os.Getwd(); err != nil || strings.HasPrefix(here, top) {
		t.Errorf("the test is in %q, %v, want that it has not moved", here, err)
	}
}
