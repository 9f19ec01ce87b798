package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const testScript = `
import sys
def boot():
    with open(sys.argv[1]) as f: code = f.read()
    exec(compile(code, sys.argv[1], 'exec'), globals())
boot()
`

func systemPython(t *testing.T) string {
	t.Helper()
	p, err := filepath.EvalSymlinks("/usr/bin/python3")
	testkit.Need(t, "python", err == nil, "no interpreter that a sandbox can see")
	return p
}

func testZygote(t *testing.T, j *Jail) *Zygote {
	t.Helper()
	z, err := j.Zygote(ZygoteConfig{
		Argv: []string{systemPython(t), "-S", "/run/program/boot.py", "main.py"}, Options: 2,
		Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Text: testkit.ForkServer(testScript),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	return z
}

// runs runs a program in a sandbox, by a fork or by execve, and returns its output.
func runs(t *testing.T, j *Jail, z *Zygote, program string) (string, Exit) {
	t.Helper()
	s := made(t, j)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		_, _ = unix.SetfsgidRetGid(s.UID())
		_, _ = unix.SetfsuidRetUid(s.UID())
	}
	for name, text := range map[string]string{"boot.py": testScript, "main.py": program} {
		fd, err := unix.Openat(s.Dirs[DirProgram], name, unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = unix.Write(fd, []byte(text))
		closeAll(fd)
	}
	if os.Geteuid() == 0 {
		_, _ = unix.SetfsuidRetUid(0)
		_, _ = unix.SetfsgidRetGid(0)
		runtime.UnlockOSThread()
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Fchown(int(w.Fd()), s.UID(), s.UID())
	cmd := Command{Argv: []string{systemPython(t), "-S", "/run/program/boot.py", "/run/program/main.py"}, Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Dir: "/mnt/data", Files: []int{int(null.Fd()), int(w.Fd()), int(w.Fd())}}
	var p *Proc
	if z != nil {
		c, err := z.Fork(s, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		p, err = c.Begin(cmd)
		if err != nil {
			t.Fatal(err)
		}
	} else if p, err = s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	out, _ := io.ReadAll(r)
	_ = r.Close()
	<-p.Done()
	e, err := p.Exit()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), e
}

func TestForkRuns(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	z := testZygote(t, j)
	for range 3 {
		out, e := runs(t, j, z, "import os, sys\nprint('hello', os.getppid(), os.getpid() > 1, sys.argv)\nsys.exit(7)")
		if want := "hello 1 True ['/run/program/boot.py', '/run/program/main.py']\n"; out != want || e.Status.ExitStatus() != 7 {
			t.Errorf("got %q, %d, want %q, 7", out, e.Status.ExitStatus(), want)
		}
	}
	if out, _ := runs(t, j, z, "1/0"); !strings.Contains(out, "ZeroDivisionError") {
		t.Errorf("got %q", out)
	}
}

// TestForkWallsOff leaves out each wall in turn around forks alone, in sandboxes
// that have it: every fork has to be refused, and nothing of it may be left.
func TestForkWallsOff(t *testing.T) {
	changes := map[string]func(*Config){}
	for _, w := range []wall{wallIDs, wallCaps, wallLandlock, wallSeccomp, wallRlimits} {
		changes[string(w)] = func(c *Config) { c.off = map[wall]bool{w: true} }
	}
	for name, flag := range map[string]uint64{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "network": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP,
	} {
		changes[name] = func(c *Config) { c.without = flag }
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			if name == string(wallIDs) && cfg.Mode == ModeUser {
				t.Skip("there the id map alone makes an ordinary user of it: nothing is left out")
			}
			j, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			z := testZygote(t, j)
			s := made(t, j)
			defer func() { _ = s.Close() }()
			change(&j.cfg) // the sandbox and the zygote stand
			c, err := z.Fork(s, nil, false)
			if err == nil {
				c.Release()
				t.Fatalf("a fork without the wall: got it with walls %q, want an error", s.forked)
			}
			t.Log(err)
			if !errors.Is(err, ErrNotForked) || len(s.forked) > 0 {
				t.Errorf("got %v and walls %q: something is left", err, s.forked)
			}
		})
	}
}

// TestZygoteFilter: an interpreter without a filter of its own is not used, and
// under it nothing but entering sandboxes is allowed beyond what programs may do.
func TestZygoteFilter(t *testing.T) {
	cfg := testConfig(t)
	cfg.Entering = nil
	j, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	zc := ZygoteConfig{Argv: []string{systemPython(t), "-S", "/run/program/boot.py", "main.py"}, Options: 2, Env: []string{"PATH=/usr/bin:/bin"}, Text: testkit.ForkServer(testScript)}
	if z, err := j.Zygote(zc); err == nil {
		z.Close()
		t.Error("a zygote without a filter")
	}
	j.cfg.Entering = cfg.Filter // which does not allow setns
	z, err := j.Zygote(zc)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	s := made(t, j)
	defer func() { _ = s.Close() }()
	if c, err := z.Fork(s, nil, false); !errors.Is(err, ErrNotForked) || !errors.Is(err, unix.EPERM) {
		if err == nil {
			c.Release()
		}
		t.Errorf("a fork under the filter of programs: got %v, want it refused at the sandbox", err)
	}
}

// TestZygoteHasItsOwnFilter: each process of a jail has the builder's filter. That of the builder alone is not enough.
func TestZygoteHasItsOwnFilter(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	z := testZygote(t, j) // has passed the check
	status, err := os.ReadFile("/proc/" + strconv.Itoa(j.pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "Seccomp_filters") {
		t.Skip("this kernel does not count filters")
	}
	if z.filtered(string(status)) == nil {
		t.Error("a process with the filters of the builder: got no error, want one")
	}
}

// TestForkIsNotTold: a fork that cannot be sent its program, because it is too large or the
// sandbox ends, ends itself, and its descriptor is given back.
func TestForkIsNotTold(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	z := testZygote(t, j)
	for name, fail := range map[string]func(*Slot) (Command, error){
		"too large": func(*Slot) (Command, error) {
			return Command{Argv: []string{strings.Repeat("x", 201<<10)}}, ErrTooLarge
		},
		"too many": func(*Slot) (Command, error) { return Command{Argv: make([]string, maxStrings+1)}, ErrTooLarge },
		"wrong":    func(*Slot) (Command, error) { return Command{}, nil },
		"ended": func(s *Slot) (Command, error) {
			s.mu.Lock()
			s.dead = true
			s.mu.Unlock()
			return Command{Argv: []string{"x"}}, ErrEnded
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := made(t, j)
			defer func() { _ = s.Close() }()
			c, err := z.Fork(s, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			life, err := unix.PidfdOpen(c.HostPID(), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(life)
			control := c.control
			cmd, want := fail(s)
			if _, err := c.Begin(cmd); err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if _, err := unix.FcntlInt(uintptr(control), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("the zygote's descriptor: got %v, want EBADF", err)
			}
			if err := waitPidfd(life, answerLimit); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForkOfADyingZygote kills the zygote at any moment of a fork: there is a fork
// then, or it was refused and nothing of it is left in the sandbox.
func TestForkOfADyingZygote(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	forks, refused := 0, 0
	for i := range 80 {
		z := testZygote(t, j)
		s := made(t, j)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(i) * 25 * time.Microsecond) // each round kills at another moment of the fork
			_ = unix.PidfdSendSignal(z.pidfd, unix.SIGKILL, nil, 0)
		}()
		c, err := z.Fork(s, nil, i%2 == 0)
		<-killed
		want := 1
		switch {
		case err == nil:
			forks, want = forks+1, 2
		case errors.Is(err, ErrNotForked):
			refused++
		default:
			t.Errorf("killed after %d us: got %v, want nil or a refusal", 25*i, err)
		}
		if got := inside(t, s); got != want {
			t.Errorf("killed after %d us: %d processes in the sandbox, want %d; %v", 25*i, got, want, err)
		}
		if c != nil {
			if err := c.Drop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		z.Close()
	}
	t.Logf("%d forks, %d refused", forks, refused)
}

// TestForkInADyingSandbox ends the sandbox at any moment of a fork. Nothing of the fork is
// left, no caller waits, and the zygote serves on.
func TestForkInADyingSandbox(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	z := testZygote(t, j)
	failed := 0
	for i := range 120 {
		s := made(t, j)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(i%60) * 25 * time.Microsecond) // each round kills at another moment of the fork
			_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
		}()
		c, err := z.Fork(s, nil, i%2 == 0)
		if err != nil {
			failed++
		}
		<-killed
		if c != nil {
			if _, err := c.Begin(Command{Argv: []string{"x"}}); err == nil {
				t.Log("it ended later") // init's end is known by its socket, a little after the kill
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if z.Broken() {
			t.Fatalf("killed after %d us, the zygote is given up: %v", i%60*25, err)
		}
	}
	if out, e := runs(t, j, z, "print('up')"); out != "up\n" || e.Status.ExitStatus() != 0 {
		t.Errorf("a program after all rounds: got %q, %v; want up", out, e)
	}
	t.Logf("%d of 120 failed", failed)
}

// inside counts what runs in a sandbox: what ends has given its memory back before
// its descriptors, and runs nothing any more.
func inside(t *testing.T, s *Slot) (n int) {
	t.Helper()
	want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, p := range all {
		_, ending := os.Readlink(filepath.Join(filepath.Dir(filepath.Dir(p)), "exe"))
		if got, err := os.Readlink(p); err == nil && got == want && ending == nil {
			n++
		}
	}
	return n
}

// BenchmarkFork is what a fork in a ready sandbox costs.
func BenchmarkFork(b *testing.B) {
	j, err := Open(testConfig(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	p, _ := filepath.EvalSymlinks("/usr/bin/python3")
	z, err := j.Zygote(ZygoteConfig{Argv: []string{p, "-S", "/run/program/boot.py", "main.py"}, Options: 2, Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Text: testkit.ForkServer(testScript)})
	if err != nil {
		b.Fatal(err)
	}
	defer z.Close()
	for b.Loop() {
		b.StopTimer()
		turn, err := j.Turn()
		if err != nil {
			b.Fatal(err)
		}
		s, err := turn.New(SlotConfig{Size: testSize})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		c, err := z.Fork(s, nil, false)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Release()
		_ = s.Close()
		b.StartTimer()
	}
}

// TestScriptsHaveNumbersOfTheirOwn: a script that the fork server refuses does not lead to
// another being replaced that is still in use.
func TestScriptsHaveNumbersOfTheirOwn(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ours, theirs)
	z := &Zygote{jail: &Jail{cfg: Config{Mode: ModeUser}}, control: ours, plans: map[childPlan]*childScript{}}
	sent := map[uint32]int{} // what the fork server has under each number
	ask := func(tasks int, answer byte) error {
		t.Helper()
		if err := send(theirs, words(uint32(answer), uint32(unix.EINVAL))); err != nil { // it waits in the socket
			t.Fatal(err)
		}
		_, err := z.wallsLocked(Size{MaxTasks: tasks}, 0)
		packet, _, _ := receive(theirs, make([]byte, 1<<17))
		if answer == 'P' {
			sent[word(packet, 1)] = tasks
		}
		return err
	}
	for i := range maxPlans + 3 {
		if err := ask(i+1, 'P'); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(100, 'E'); err == nil {
		t.Error("a script that is refused: got no error, want one")
	}
	for i := range 3 {
		if err := ask(i+200, 'P'); err != nil {
			t.Fatal(err)
		}
	}
	if len(z.plans) != maxPlans {
		t.Errorf("got %d scripts, want %d", len(z.plans), maxPlans)
	}
	for key, cs := range z.plans {
		if got := sent[cs.number]; got != key.size.MaxTasks {
			t.Errorf("script %d is for %d tasks, and the fork server has that for %d", cs.number, key.size.MaxTasks, got)
		}
	}
}

// TestNoForkAfterAKill: a sandbox in which nothing ran is killed at once, and no fork is made in it afterwards.
func TestNoForkAfterAKill(t *testing.T) {
	j, s := testSlot(t)
	z := testZygote(t, j)
	if !s.Alone() {
		t.Error("nothing was started, and Alone is false")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := z.Fork(s, nil, false); !errors.Is(err, ErrNotForked) || !errors.Is(err, ErrEnded) {
		t.Errorf("a fork afterwards: got %v, want ErrNotForked and ErrEnded", err)
	}
	if z.Broken() {
		t.Error("the zygote is broken, want it to serve other sandboxes")
	}
	if err := s.End(); err != nil || !s.Ended() {
		t.Errorf("End: got %v, and init has ended: %v; want nil and true", err, s.Ended())
	}
}

// TestAForkIsNotAlone: a kill ends a fork that waits for its program. A report of init that it is alone, sent before the
// fork was made and read afterwards, changes nothing.
func TestAForkIsNotAlone(t *testing.T) {
	j, s := testSlot(t)
	z := testZygote(t, j)
	c, err := z.Fork(s, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Release)
	if s.Alone() {
		t.Error("a fork waits, and Alone is true")
	}
	late := make([]byte, 40) // init's report of an earlier process, from before it had the fork
	binary.LittleEndian.PutUint32(late[4:], c.pid+1)
	binary.LittleEndian.PutUint32(late[32:], 1)
	s.mu.Lock()
	s.ended(late)
	s.mu.Unlock()
	if s.Alone() {
		t.Error("after a report that was on its way when the fork was made, Alone is true")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(c.HostPID(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the fork after the kill: got %v, want it gone", err)
	}
}
