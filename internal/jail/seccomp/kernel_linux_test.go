package seccomp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// A filter cannot be taken off, so what happens under one happens in a child:
// this test program once more, told its part by the environment.
const (
	partEnv    = "SECCOMP_TEST_PART"
	variantEnv = "SECCOMP_TEST_VARIANT"
)

func TestMain(m *testing.M) {
	if part := os.Getenv(partEnv); part != "" {
		child(part)
	}
	os.Exit(m.Run())
}

// load puts a filter on the calling thread, which must be locked.
func load(prog []byte) (time.Duration, error) {
	fprog := unix.SockFprog{
		Len:    uint16(len(prog) / seccomp.InstructionSize),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0])),
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	start := time.Now()
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	took := time.Since(start)
	if e != 0 {
		return 0, e
	}
	return took, nil
}

func child(part string) {
	runtime.LockOSThread()
	var bits uint8
	_, _ = fmt.Sscan(os.Getenv(variantEnv), &bits)
	code := foreignCode(part)
	arch, ok := seccomp.Native()
	if ok && !strings.HasSuffix(part, "-bare") {
		prog, err := seccomp.Compile(seccomp.New(variantOf(bits)), arch)
		if err == nil {
			_, err = load(prog)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "load filter:", err)
			os.Exit(99)
		}
	}
	switch strings.TrimSuffix(part, "-bare") {
	case "table":
		json.NewEncoder(os.Stdout).Encode(observe())
	case "sockets":
		json.NewEncoder(os.Stdout).Encode(families())
	case "int80":
		code()
		fmt.Println("came back")
	case "exec":
		err := unix.Exec(os.Args[1], os.Args[1:], []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"})
		fmt.Fprintln(os.Stderr, "exec:", err)
		os.Exit(98)
	}
	os.Exit(0)
}

// foreignCode is a function that calls getpid by the i386 table. It is made before the filter
// is installed, so that only the call is judged.
func foreignCode(part string) func() {
	if !strings.HasPrefix(part, "int80") {
		return nil
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(97)
	}
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3}) // mov eax, 20; int 0x80; ret
	entry := &struct{ at *byte }{&page[0]}
	return *(*func())(unsafe.Pointer(&entry))
}

// observe makes raw calls and reports how each failed.
func observe() map[string]string {
	raw := func(nr uintptr, a ...uintptr) string {
		a = append(a, make([]uintptr, 6-len(a))...)
		r, _, e := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if e == 0 {
			if nr == unix.SYS_SOCKET || nr == unix.SYS_MEMFD_CREATE {
				unix.Close(int(r))
			}
			return "ok"
		}
		return unix.ErrnoName(e)
	}
	var pair [2]int32
	var domain [8]byte
	return map[string]string{
		"clone newuser":     raw(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)),
		"clone3":            raw(unix.SYS_CLONE3, 0, 0),
		"unshare user":      raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"unshare nothing":   raw(unix.SYS_UNSHARE, 0),
		"setns":             raw(unix.SYS_SETNS, ^uintptr(0), 0),
		"io_uring_setup":    raw(unix.SYS_IO_URING_SETUP, 1, 0),
		"bpf":               raw(unix.SYS_BPF, 0, 0, 0),
		"keyctl":            raw(unix.SYS_KEYCTL, 0, 0, 0),
		"add_key":           raw(unix.SYS_ADD_KEY, 0, 0, 0),
		"userfaultfd":       raw(unix.SYS_USERFAULTFD, 0),
		"perf_event_open":   raw(unix.SYS_PERF_EVENT_OPEN, 0),
		"ptrace traceme":    raw(unix.SYS_PTRACE, 0),
		"mount":             raw(unix.SYS_MOUNT, 0, 0, 0, 0, 0),
		"sync":              raw(unix.SYS_SYNC),
		"adjtimex":          raw(unix.SYS_ADJTIMEX, 0),
		"statmount":         raw(457, 0, 0, 0, 0),
		"unknown call":      raw(1000),
		"x32 getpid":        raw(0x40000000 | 39),
		"vsock":             raw(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"vsock high word":   raw(unix.SYS_SOCKET, 1<<32|unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"packet":            raw(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0),
		"raw inet":          raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP),
		"raw icmp":          raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		"mptcp":             raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"netlink uevent":    raw(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT),
		"tcp":               raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP),
		"unix":              raw(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0),
		"socketpair":        raw(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, uintptr(unsafe.Pointer(&pair))),
		"TIOCSTI":           raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&domain))),
		"TIOCSTI high word": raw(unix.SYS_IOCTL, 0, 1<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&domain))),
		"TIOCSTI as int":    raw(unix.SYS_IOCTL, 0, 0xffffffff<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&domain))),
		"TIOCLINUX":         raw(unix.SYS_IOCTL, 0, unix.TIOCLINUX, uintptr(unsafe.Pointer(&domain))),
		"TCGETS high word":  raw(unix.SYS_IOCTL, 0, 1<<32|unix.TCGETS, uintptr(unsafe.Pointer(&domain))),
		"personality query": raw(unix.SYS_PERSONALITY, 0xffffffff),
		"personality aslr":  raw(unix.SYS_PERSONALITY, 0x40000),
		"memfd_create":      raw(unix.SYS_MEMFD_CREATE, uintptr(unsafe.Pointer(&domain)), 0),
		"mmap shared anon":  raw(unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON, ^uintptr(0)),
		"mmap private anon": raw(unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0)),
		"shmget":            raw(unix.SYS_SHMGET, 0, 4096, 0),
		"affinity":          raw(unix.SYS_SCHED_SETAFFINITY, 0, 8, uintptr(unsafe.Pointer(&[1]uint64{^uint64(0)}))),
	}
}

// families is every family that a socket of some type can be made of.
func families() []int {
	var got []int
	for family := range 501 {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			if fd, err := unix.Socket(family, kind, 0); err == nil {
				unix.Close(fd)
				got = append(got, family)
				break
			}
		}
	}
	return got
}

func part(t *testing.T, name string, bits int, argv ...string) *exec.Cmd {
	t.Helper()
	if _, ok := seccomp.Native(); !ok {
		t.Skip("no table for this architecture")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args = append([]string{"child"}, argv...)
	cmd.Env = append(os.Environ(), partEnv+"="+name, fmt.Sprintf("%s=%d", variantEnv, bits))
	cmd.Dir = t.TempDir()
	return cmd
}

func answer[T any](t *testing.T, cmd *exec.Cmd) T {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the child: got %v: %s, want no error", err, stderrOf(err))
	}
	var got T
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("the child's output: got %v in %q, want JSON", err, out)
	}
	return got
}

func stderrOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}

func TestKernelSockets(t *testing.T) {
	got := answer[[]int](t, part(t, "sockets", 0))
	if diff := cmp.Diff([]int{1, 2, 10}, got); diff != "" {
		t.Errorf("families that a socket could be made of (-want +got):\n%s", diff)
	}
	if got := answer[[]int](t, part(t, "sockets", 2)); len(got) != 0 {
		t.Errorf("without sockets: got families %v", got)
	}
	bare := answer[[]int](t, part(t, "sockets-bare", 0))
	if len(bare) <= 3 {
		t.Logf("without a filter this kernel has only %v, so the test says little here", bare)
	}
}

func TestKernelVerdicts(t *testing.T) {
	want := map[string]string{
		"clone newuser": "EPERM", "clone3": "ENOSYS", "unshare user": "EPERM", "unshare nothing": "EPERM",
		"setns": "EPERM", "io_uring_setup": "ENOSYS", "bpf": "EPERM", "keyctl": "EPERM", "add_key": "EPERM",
		"userfaultfd": "EPERM", "perf_event_open": "EPERM", "ptrace traceme": "EPERM", "mount": "EPERM",
		"sync": "EPERM", "adjtimex": "EPERM", "statmount": "ENOSYS", "unknown call": "ENOSYS", "x32 getpid": "ENOSYS",
		"vsock": "EAFNOSUPPORT", "vsock high word": "EAFNOSUPPORT", "packet": "EAFNOSUPPORT", "raw inet": "EPERM",
		"raw icmp": "EPERM", "mptcp": "EAFNOSUPPORT", "netlink uevent": "EAFNOSUPPORT",
		"tcp": "ok", "unix": "ok", "socketpair": "ok",
		"TIOCSTI": "EPERM", "TIOCSTI high word": "EPERM", "TIOCSTI as int": "EPERM", "TIOCLINUX": "EPERM", "TCGETS high word": "EPERM",
		"personality query": "ok", "personality aslr": "EPERM",
		"memfd_create": "ok", "mmap shared anon": "ok", "mmap private anon": "ok", "shmget": "ok", "affinity": "ok",
	}
	if diff := cmp.Diff(want, answer[map[string]string](t, part(t, "table", 0))); diff != "" {
		t.Errorf("full sandbox (-want +got):\n%s", diff)
	}
	maps.Copy(want, map[string]string{
		"memfd_create": "ENOSYS", "mmap shared anon": "ENOMEM", "shmget": "ENOSYS",
		"tcp": "EAFNOSUPPORT", "unix": "EAFNOSUPPORT", "netlink uevent": "EAFNOSUPPORT", "raw inet": "EAFNOSUPPORT",
		"raw icmp": "EAFNOSUPPORT", "affinity": "EPERM", "setns": "EBADF",
	})
	if diff := cmp.Diff(want, answer[map[string]string](t, part(t, "table", 15))); diff != "" {
		t.Errorf("all variants (-want +got):\n%s", diff)
	}
}

func TestKernelKillsForeignCall(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("int 0x80 is an instruction of amd64")
	}
	if out, err := part(t, "int80-bare", 0).Output(); err != nil {
		t.Skipf("this kernel has no i386 table: %v %q", err, out)
	}
	out, err := part(t, "int80", 0).Output()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("int 0x80: got %v and %q, want SIGSYS", err, out)
	}
	if got, want := exit.Sys().(syscall.WaitStatus).Signal(), syscall.SIGSYS; got != want {
		t.Errorf("int 0x80: got %v, want %v", got, want)
	}
}

// Real programs run under the filter as they do without.
func TestKernelPrograms(t *testing.T) {
	python := func(lines ...string) []string {
		return []string{"/usr/bin/python3", "-c", strings.Join(lines, "\n")}
	}
	cases := []struct {
		name string
		argv []string
		bits int
		want string
	}{
		{"python", python("print(1)"), 0, "1\n"},
		{"python subprocess", python("import subprocess", "print(subprocess.run(['/bin/echo','x'],capture_output=True).stdout)"), 0, "b'x\\n'\n"},
		{"python threads", python("import threading", "r=[]", "t=[threading.Thread(target=r.append,args=(i,)) for i in range(20)]",
			"[x.start() for x in t]", "[x.join() for x in t]", "print(len(r))"), 0, "20\n"},
		{"python multiprocessing", python("from multiprocessing import Pool", "with Pool(2) as p: print(p.map(abs,[-1,-2]))"), 0, "[1, 2]\n"},
		{"python multiprocessing without shared memory", python("from multiprocessing import Pool", "with Pool(2) as p: print(p.map(abs,[-1,-2]))"), 5, "[1, 2]\n"},
		{"python asyncio", python("import asyncio", "async def f():",
			" s=await asyncio.start_server(lambda r,w:w.close(),'127.0.0.1',0)", " r,w=await asyncio.open_connection(*s.sockets[0].getsockname())",
			" print(await r.read())", "asyncio.run(f())"), 0, "b''\n"},
		{"python files", python("import tempfile,os,shutil,sqlite3", "d=tempfile.mkdtemp()", "c=sqlite3.connect(d+'/x')",
			"c.execute('create table t(a)')", "c.commit()", "c.close()", "print(os.listdir(d))", "shutil.rmtree(d)"), 0, "['x']\n"},
		{"bash", []string{"/usr/bin/bash", "-c", "echo $(( 1 + 2 )) | cat; ls / >/dev/null && echo done"}, 0, "3\ndone\n"},
		{"node", []string{"/usr/bin/node", "-e", "require('fs').readFileSync('/etc/hostname'); setTimeout(() => console.log('n'), 1)"}, 0, "n\n"},
		{"node tier 1", []string{"/usr/bin/node", "-e", "console.log('n')"}, 7, "n\n"},
		{"node child", []string{"/usr/bin/node", "-e", "console.log(require('child_process').execSync('echo c').toString())"}, 0, "c\n\n"},
		{"node worker", []string{"/usr/bin/node", "-e", "const {Worker}=require('worker_threads'); new Worker('require(\"worker_threads\").parentPort.postMessage(5)',{eval:true}).on('message',m=>console.log(m))"}, 0, "5\n"},
		{"perl", []string{"/usr/bin/perl", "-e", "print `echo p`"}, 0, "p\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(c.argv[0]); err != nil {
				t.Skipf("%s is not installed", filepath.Base(c.argv[0]))
			}
			out, err := part(t, "exec", c.bits, c.argv...).Output()
			if err != nil || string(out) != c.want {
				t.Errorf("got %q, %v, want %q; stderr: %s", out, err, c.want, stderrOf(err))
			}
		})
	}
}

// What the filter costs: a fresh thread per load, since filters add up.
func BenchmarkLoad(b *testing.B) {
	arch, ok := seccomp.Native()
	if !ok {
		b.Skip("no table for this architecture")
	}
	prog, err := seccomp.Compile(seccomp.Policy{}, arch)
	if err != nil {
		b.Fatal(err)
	}
	var times []time.Duration
	for range b.N {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			took, err := load(prog)
			if err != nil {
				b.Error(err)
				return
			}
			times = append(times, took)
		}()
		<-done
	}
	slices.Sort(times)
	if len(times) > 0 {
		b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "µs/load-p50")
	}
	b.ReportMetric(float64(len(prog)/seccomp.InstructionSize), "instructions")
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := seccomp.Compile(seccomp.Policy{}, seccomp.AMD64); err != nil {
			b.Fatal(err)
		}
	}
}
