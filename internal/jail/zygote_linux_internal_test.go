package jail

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
		Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Script: []byte(testScript),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	return z
}

// runs runs a program in a sandbox, by a fork or by execve, and tells its output.
func runs(t *testing.T, j *Jail, z *Zygote, program string) (string, Exit) {
	t.Helper()
	turn, err := j.Turn()
	if err != nil {
		t.Fatal(err)
	}
	s, err := turn.New(SlotConfig{Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
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

// BenchmarkFork is what a fork in a ready sandbox costs.
func BenchmarkFork(b *testing.B) {
	j, err := Open(testConfig(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	p, _ := filepath.EvalSymlinks("/usr/bin/python3")
	z, err := j.Zygote(ZygoteConfig{Argv: []string{p, "-S", "/run/program/boot.py", "main.py"}, Options: 2, Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Script: []byte(testScript)})
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
