package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// terminals opens a sandbox for terminals. If the backend has none, it checks that Open says so,
// and skips the test.
func (s *suite) terminals(t *testing.T) *box {
	t.Helper()
	with := func(p *backend.Spec) { p.Terminal = true }
	if s.b.Capabilities(t.Context()).Terminal {
		return s.open(t, with)
	}
	spec := s.spec()
	with(&spec)
	sb, err := s.b.Open(t.Context(), spec)
	if err == nil {
		_ = sb.Close(t.Context())
	}
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable {
		t.Errorf("Open: got %v, want %s", err, sandboxmcp.CodeIsolationUnavailable)
	}
	t.Skip("sandboxes have no terminals here")
	return nil
}

const onTerminal = `
import fcntl, os, signal, struct, sys, termios
def size(): return "%dx%d" % struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))[1::-1]
print(os.ttyname(0), os.isatty(1), os.isatty(2), os.tcgetpgrp(0) == os.getpgrp(), os.getsid(0) == os.getpid(), size())
for command in (termios.TIOCSTI, 0x541c, 0x541d, 0x5423): # TIOCLINUX, TIOCCONS, TIOCSETD
    try: fcntl.ioctl(0, command, b"\x06"); print("taken", hex(command))
    except OSError as e: print(e.errno)
print(oct(os.open("/dev/pts/0", os.O_RDWR)), oct(os.fstat(0).st_mode & 0o777), os.fstat(0).st_uid == os.getuid())
try: os.openpty(); print("made")
except OSError: print("makes none")
# A handler may run in the middle of a print, and print cannot be entered twice.
signal.signal(signal.SIGWINCH, lambda *a: os.write(1, b"size %s\n" % size().encode()))
print("up", flush=True)
while True:
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        continue
    if not line: break
    print("got", line.strip(), flush=True)
print("end", flush=True)
`

// terminalOwn: a process has a controlling terminal of the size that it was given, which
// echoes, interrupts and is resized. Programs cannot give it input and cannot make others:
// a kernel thread processes what is written to a master, and no CPU limit counts that.
func terminalOwn(t *testing.T, s *suite) {
	x := s.terminals(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := x.python(t, onTerminal)
	p.Terminal = &backend.TerminalSize{Columns: 80, Rows: 24}
	p.Channels = 1
	r, out, errs := x.start(t, p)
	shows := func(want string) {
		t.Helper()
		if !soon(t, patience, func() bool { return strings.Contains(out.String(), want) }) {
			t.Fatalf("got %q, want %q in it", out.String(), want)
		}
	}
	write := func(text string) {
		t.Helper()
		if n, err := r.WriteStdin(ctx, []byte(text)); err != nil || n != len(text) {
			t.Fatalf("WriteStdin: %d, %v", n, err)
		}
	}
	shows("up\r\n")
	if want := "/dev/pts/0 True True True True 80x24\r\n1\r\n1\r\n1\r\n25\r\n0o4 0o600 True\r\nmakes none\r\nup\r\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	write("hello\n")
	shows("hello\r\ngot hello\r\n")
	if err := r.Resize(ctx, backend.TerminalSize{Columns: 132, Rows: 43}); err != nil {
		t.Errorf("Resize: %v", err)
	}
	shows("size 132x43\r\n")
	write("\x03")
	shows("interrupted\r\n")
	if err := r.Flush(ctx); err != nil {
		t.Errorf("Flush: %v", err)
	}
	for range 2 {
		if err := r.CloseStdin(ctx); err != nil {
			t.Errorf("CloseStdin: %v", err)
		}
	}
	if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{}) {
		t.Errorf("Wait: %+v, %v; it printed %q", e, err, out.String())
	}
	if err := r.Drain(ctx); err != nil || !strings.HasSuffix(out.String(), "end\r\n") || errs.String() != "" {
		t.Errorf("Drain: %v; got %q and %q, want end and no stderr", err, out.String(), errs.String())
	}
	if _, err := r.WriteStdin(ctx, []byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after CloseStdin: got %v, want %v", err, fs.ErrClosed)
	}
	if got := x.sh(t, "tty; :"); got != "not a tty\n" {
		t.Errorf("a process without a terminal: got %q, want that it has none", got)
	}
	plain, _, _ := x.start(t, backend.Process{Argv: []string{"/bin/true"}})
	if err := plain.Resize(ctx, backend.TerminalSize{Columns: 1, Rows: 1}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("Resize without a terminal: got %v, want %s", err, sandboxmcp.CodeInvalidArgument)
	}
	other := s.open(t)
	if _, err := other.Start(ctx, backend.Process{Argv: []string{"/bin/true"}, Terminal: p.Terminal}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("in a sandbox without terminals: got %v, want %s", err, sandboxmcp.CodeInvalidArgument)
	}
	if got := other.sh(t, "ls -A /dev/pts 2>/dev/null; (: < /dev/ptmx) 2>/dev/null && echo open; :"); got != "" {
		t.Errorf("in a sandbox without terminals: got %q, want nothing", got)
	}
}

// terminalsApart: a sandbox has a bounded number of terminals, sees only its own, and leaves none
// behind. Endless output and unread input delay no caller.
func terminalsApart(t *testing.T, s *suite) {
	x, other := s.terminals(t), s.terminals(t)
	used := func() (n int) {
		b, err := os.ReadFile("/proc/sys/kernel/pty/nr")
		if err != nil {
			t.Skipf("ptys are not counted here: %v", err)
		}
		_, _ = fmt.Sscan(string(b), &n)
		return n
	}
	before := used()
	size := &backend.TerminalSize{Columns: 80, Rows: 24}
	var all []backend.Running
	for {
		r, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "sleep 60; :"}, Env: x.environment(nil), Terminal: size})
		if err != nil {
			break
		}
		if all = append(all, r); len(all) > 64 {
			t.Fatal("a sandbox has terminals without end")
		}
	}
	if n := used() - before; len(all) < 2 || n > 64 {
		t.Errorf("one sandbox has %d terminals, and the host %d more, want a bound", len(all), n)
	}
	r, out, _ := other.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "tty; ls /dev/pts"}, Terminal: size})
	if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{}) {
		t.Errorf("Wait: %+v, %v", e, err)
	}
	if err := r.Drain(t.Context()); err != nil || out.String() != "/dev/pts/0\r\n0  ptmx\r\n" {
		t.Errorf("another sandbox: got %q, %v, want its own terminal alone", out.String(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for range 100 { // no program reads it
		if _, err := all[0].WriteStdin(ctx, make([]byte, 1<<16)); err != nil {
			break
		}
	}
	if err := all[0].CloseStdin(t.Context()); err != nil {
		t.Errorf("CloseStdin of a full terminal: %v", err)
	}
	var c counter
	if _, err := other.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "while :; do echo flood; done"}, Env: x.environment(nil), Terminal: size, Stdout: &c}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*box{"full": x, "flooding": other} {
		begin := time.Now()
		if err := b.Kill(t.Context()); err != nil {
			t.Errorf("Kill of a %s sandbox: %v", name, err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("Close of a %s sandbox: %v", name, err)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the end of a %s sandbox took %v", name, took)
		}
	}
	if !soon(t, patience, func() bool { return used() <= before }) {
		t.Errorf("%d terminals are left, want %d", used(), before)
	}
}

// flushTerminal: after Flush the writer has what the process wrote to its terminal before it
// said so on a channel.
func flushTerminal(t *testing.T, s *suite) {
	x := s.terminals(t)
	p := x.python(t, `
import os
for i in range(200):
    for n in range(4): os.write(1, b"x" * 500)
    os.write(3, b"x"); os.read(4, 1)
`)
	p.Terminal, p.Channels = &backend.TerminalSize{Columns: 80, Rows: 24}, 2
	r, out, _ := x.start(t, p)
	c, one, late := r.Channel(0), make([]byte, 1), 0
	for i := range 200 {
		if _, err := c.Read(one); err != nil {
			t.Fatalf("Read: %v; it printed %.500q", err, out.String())
		}
		if err := r.Flush(t.Context()); err != nil {
			t.Fatalf("Flush: %v", err)
		}
		if len(out.String()) != 2000*(i+1) {
			late++
		}
		if _, err := c.Write(one); err != nil {
			t.Fatalf("Write: %v", err)
		}
	}
	if late > 0 {
		t.Errorf("output was missing after %d of 200 calls of Flush, want none", late)
	}
}

// terminalsMakeRoom: a sandbox that had all its terminals at once has others when they
// have ended.
func terminalsMakeRoom(t *testing.T, s *suite) {
	x := s.terminals(t)
	start := func() (backend.Running, error) {
		return x.Start(t.Context(), backend.Process{Argv: []string{"/bin/cat"}, Env: x.environment(nil), Terminal: &backend.TerminalSize{Columns: 80, Rows: 24}})
	}
	for range 2 {
		var all []backend.Running
		for len(all) <= 64 {
			r, err := start()
			if err != nil {
				break
			}
			all = append(all, r)
		}
		if len(all) == 0 {
			t.Fatal("got no terminal although all have ended")
		}
		for _, r := range all {
			if err := r.CloseStdin(t.Context()); err != nil {
				t.Errorf("CloseStdin: %v", err)
			}
			if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{}) {
				t.Errorf("Wait: %+v, %v", e, err)
			}
			if err := r.Drain(t.Context()); err != nil {
				t.Errorf("Drain: %v", err)
			}
		}
	}
}

// terminalAttacks: apart from its terminals, a sandbox with terminals refuses what other sandboxes
// refuse.
func terminalAttacks(t *testing.T, s *suite) {
	s.terminals(t)
	s.term = true
	defer func() { s.term = false }()
	for _, name := range []string{"a04-fd-leak.py", "a11-proc-sys.py", "a13-devices.py", "a16-kernel-surface.py", "a24-status.py", "b01-other-files.py"} {
		t.Run(name, func(t *testing.T) { s.attack(t, name, readHead(t, string(payload(t, name)))) })
	}
}
