package backendtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// programFilesReadOnly: a program cannot change its program files or their directory.
func programFilesReadOnly(t *testing.T, s *suite) {
	e := s.open(t).run(t, backend.Process{
		Argv: []string{"/bin/sh", "-c", `cat "$PROGRAM/a b"; (echo x > "$PROGRAM/a b") 2>/dev/null && echo written
			(echo x > "$PROGRAM/new") 2>/dev/null && echo made; rm -f "$PROGRAM/a b" 2>/dev/null && [ ! -e "$PROGRAM/a b" ] && echo removed; chmod 777 "$PROGRAM" 2>/dev/null && (echo x > "$PROGRAM/new") 2>/dev/null && echo opened; :`},
		Program: []backend.ProgramFile{{Name: "a b", Data: []byte("old")}},
	})
	if e.Out != "old" {
		t.Errorf("a program that tries to change its file: got %q (stderr %q), want %q", e.Out, e.Err, "old")
	}
}

// programFiles: program files are in place before the program runs, and replace those of the same
// names. Their names have no slash.
func programFiles(t *testing.T, s *suite) {
	x := s.open(t)
	data := []byte("\x00\xff odd \n bytes\r\n")
	cat := func(files ...backend.ProgramFile) ended {
		return x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", `cat "$PROGRAM/a b"`}, Program: files})
	}
	if e := cat(backend.ProgramFile{Name: "a b", Data: data}); e.Out != string(data) {
		t.Errorf("program file: got %q (stderr %q), want %q", e.Out, e.Err, data)
	}
	if e := cat(backend.ProgramFile{Name: "a b", Data: []byte("new")}); e.Out != "new" {
		t.Errorf("program file of a second start: got %q, want %q", e.Out, "new")
	}
	for _, name := range []string{"../x", "/x", "a/b", "..", ""} {
		_, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", ":"}, Program: []backend.ProgramFile{{Name: name, Data: data}}})
		if err == nil {
			t.Errorf("a program file named %q is taken", name)
		}
	}
	if got := x.sh(t, `cat "$PROGRAM/a b"; [ ! -e "$PROGRAM/../x" ] || echo outside`); got != "new" {
		t.Errorf("after the names that are refused: got %q, want %q", got, "new")
	}
}

func streamsExact(t *testing.T, s *suite) {
	x := s.open(t)
	in := make([]byte, 300_000)
	if _, err := rand.Read(in); err != nil {
		t.Fatal(err)
	}
	e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "tee /proc/self/fd/2 2>/dev/null || cat"}, Stdin: in})
	if e.Out != string(in) {
		t.Errorf("stdout: %d bytes differ from the %d that went in", len(e.Out), len(in))
	}
	e = x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "cat >&2; echo end"}, Stdin: in})
	if e.Err != string(in) || e.Out != "end\n" {
		t.Errorf("stderr: %d bytes, want %d; stdout %q", len(e.Err), len(in), e.Out)
	}
	// a program that does not read a large stdin can still end
	e = x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "exit 3"}, Stdin: bytes.Repeat(in, 4)})
	if e.Exit != (backend.Exit{Code: 3}) {
		t.Errorf("exit: got %+v, want code 3", e.Exit)
	}
	// a writer that fails does not end the process
	r, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "head -c 1000000 /dev/zero; exit 4"}, Env: x.environment(nil), Stdout: failing{}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Wait(t.Context()); err != nil || got != (backend.Exit{Code: 4}) {
		t.Errorf("with a failing writer: got %+v, %v, want code 4", got, err)
	}
	if err := r.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func stdinNil(t *testing.T, s *suite) {
	x := s.open(t)
	for name, in := range map[string][]byte{"nil": nil, "empty": {}} {
		if e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "cat; echo end"}, Stdin: in}); e.Out != "end\n" {
			t.Errorf("stdin %s: got %q, want end of file at once", name, e.Out)
		}
	}
}

func envExact(t *testing.T, s *suite) {
	x := s.open(t)
	for _, env := range [][]string{{}, {"A=1", "B=two words", "C=line\nbreak", "D=", "E=\xff\xfe", "A=again"}} {
		p := backend.Process{Argv: []string{"/usr/bin/env", "-0"}, Env: env}
		e := x.run(t, p)
		got := strings.Split(strings.TrimSuffix(e.Out, "\x00"), "\x00")
		if len(env) == 0 {
			got = got[:copy(got, slices.DeleteFunc(got, func(v string) bool { return v == "" }))]
		}
		if diff := cmp.Diff(env, got); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
	}
}

func dirDefault(t *testing.T, s *suite) {
	x := s.open(t)
	e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", `[ "$(pwd -P)" = "$(cd "$WORK" && pwd -P)" ] && echo work`}})
	if e.Out != "work\n" {
		t.Errorf("without Dir the program runs elsewhere: %q %q", e.Out, e.Err)
	}
	e = x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "pwd -P"}, Dir: "/usr/bin"})
	if e.Out != "/usr/bin\n" && e.Out != "/bin\n" {
		t.Errorf("with Dir: got %q, want /usr/bin", e.Out)
	}
}

// userNamed: a process runs as the user that it names, or as the default user. Another user is an
// error.
func userNamed(t *testing.T, s *suite) {
	x := s.open(t)
	const who = "id -u; id -g; id -un 2>/dev/null; :"
	usual := x.sh(t, who)
	for i, name := range s.b.Capabilities(t.Context()).Users {
		e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", who}, User: name})
		if !strings.HasSuffix(e.Out, "\n"+name+"\n") || i == 0 && e.Out != usual {
			t.Errorf("as %s: got %q (%q), want that name, and without one %q", name, e.Out, e.Err, usual)
		}
	}
	for _, name := range []string{"nobody-at-all", "0", "1000:0", "sandbox\x00", " "} {
		if r, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, User: name}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("user %q: got %v, %v, want %s", name, r, err, sandboxmcp.CodeInvalidArgument)
		}
	}
}

func argvExact(t *testing.T, s *suite) {
	x := s.open(t)
	args := []string{"", " ", "-n", "a\nb", "\xff\xfe\x01", "$(id)", `"'\`, strings.Repeat("x", 100_000), "ü"}
	e := x.run(t, backend.Process{Argv: append([]string{"/bin/sh", "-c", `printf '%s\0' "$@"`, "sh"}, args...)})
	if diff := cmp.Diff(args, strings.Split(strings.TrimSuffix(e.Out, "\x00"), "\x00")); diff != "" {
		t.Errorf("arguments (-want +got):\n%s\nstderr %q", diff, e.Err)
	}
	if _, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", ":", strings.Repeat("x", 4<<20)}}); err == nil {
		t.Error("4 MiB of arguments are taken")
	}
	x.sh(t, ":") // the sandbox lives on
}

// nulRefused: strings with a NUL are refused. A NUL would end one string and begin the next, so a
// value could become another variable or argument.
func nulRefused(t *testing.T, s *suite) {
	x := s.open(t)
	for name, p := range map[string]backend.Process{
		"argument": {Argv: []string{"/usr/bin/env", "-0", "A\x00B"}},
		"variable": {Argv: []string{"/usr/bin/env", "-0"}, Env: []string{"A=1\x00LD_PRELOAD=x"}},
		"dir":      {Argv: []string{"/usr/bin/env", "-0"}, Dir: "/usr\x00/bin"},
		"nothing":  {},
	} {
		r, err := x.Start(t.Context(), p)
		if err == nil {
			_, err = r.Wait(t.Context())
		}
		if err == nil {
			t.Errorf("%s: it was started", name)
		}
	}
	x.sh(t, ":")
}

// fails starts a process that cannot be started, and returns the error.
func (x *box) fails(t *testing.T, p backend.Process) error {
	t.Helper()
	r, err := x.Start(t.Context(), p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := r.Wait(ctx)
	if err == nil {
		t.Errorf("%q in %q: ended with %+v, want an error", p.Argv, p.Dir, e)
	}
	return err
}

func missingProgram(t *testing.T, s *suite) {
	x := s.open(t)
	for _, argv := range [][]string{{"/nonexistent/program"}, {"/etc"}, {"/usr/bin/env/x"}, {"relative-and-missing"}} {
		if err := x.fails(t, backend.Process{Argv: argv}); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: Wait does not return", argv)
		}
	}
	if e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "exit 127"}}); e.Exit != (backend.Exit{Code: 127}) {
		t.Errorf("exit 127: got %+v", e.Exit)
	}
}

func missingDir(t *testing.T, s *suite) {
	x := s.open(t)
	for _, d := range []string{"/nonexistent", "/usr/bin/env", backend.WorkDir + "/missing"} {
		if err := x.fails(t, backend.Process{Argv: []string{"/bin/sh", "-c", ":"}, Dir: d}); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in %s: got %v of Wait, want an error at once", d, err)
		}
	}
	x.sh(t, ":") // the sandbox lives on
}

// descriptorsAreNoDirs: no directory is left open as a descriptor of a new process, because it
// would be a way out.
func descriptorsAreNoDirs(t *testing.T, s *suite) {
	x := s.open(t)
	for fd := range 200 {
		_ = x.fails(t, backend.Process{Argv: []string{"/bin/sh", "-c", ":"}, Dir: fmt.Sprintf("/proc/self/fd/%d", fd)})
	}
}

func exitAndSignal(t *testing.T, s *suite) {
	x := s.open(t)
	for script, want := range map[string]backend.Exit{
		"exit 0": {}, "exit 1": {Code: 1}, "exit 124": {Code: 124}, "exit 137": {Code: 137}, "exit 255": {Code: 255},
		"kill -9 $$": {Signal: 9}, "kill -15 $$": {Signal: 15}, "kill -6 $$": {Signal: 6}, "ulimit -c 0; kill -11 $$": {Signal: 11},
	} {
		if e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", script}}); e.Exit != want {
			t.Errorf("%q: got %+v, want %+v", script, e.Exit, want)
		}
	}
}

func signalAlone(t *testing.T, s *suite) {
	x := s.open(t)
	marker := "alone-" + rand.Text()
	r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", `trap 'echo got; exit 7' USR1
		/bin/sh -c 'sleep 20; :' ` + marker + ` & echo up; while :; do sleep 0.05; done`}})
	if !soon(t, patience, func() bool { return out.String() == "up\n" && len(Alive(marker)) > 1 }) {
		t.Fatalf("does not come up: %q %q", out.String(), errs.String())
	}
	if err := r.Signal(t.Context(), 10); err != nil {
		t.Fatalf("Signal: %v", err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{Code: 7}) {
		t.Errorf("Wait: got %+v, %v, want code 7", e, err)
	}
	if len(Alive(marker)) == 0 {
		t.Error("the signal reached the child too")
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(t.Context()); err != nil || out.String() != "up\ngot\n" {
		t.Errorf("output: got %q, %v", out.String(), err)
	}
	if left := Alive(marker); len(left) > 0 {
		t.Errorf("Kill left %v", left)
	}
	if err := r.Signal(t.Context(), 10); err == nil {
		t.Error("Signal to an ended process succeeds")
	}
}

func channelBothWays(t *testing.T, s *suite) {
	x := s.open(t)
	p := x.python(t, `
import os, sys
data = b""
while len(data) < 300000:
    data += os.read(4, 65536)
while data:
    data = data[os.write(3, data):]
if os.read(4, 1) == b"":
    print("end")
`)
	p.Channels = 2
	r, out, errs := x.start(t, p)
	c := r.Channel(0)
	if c == nil {
		t.Fatal("no channel")
	}
	in := make([]byte, 300_000)
	if _, err := rand.Read(in); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(in))
	if _, err := c.Write(in); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, in) {
		t.Errorf("the channel gives back something else: %v %s", err, errs.String())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{}) {
		t.Errorf("Wait: %+v, %v", e, err)
	}
	if _ = r.Drain(ctx); out.String() != "end\n" {
		t.Errorf("output: got %q (%s), want end of file on the channel", out.String(), errs.String())
	}

	// a program that floods the channel and one that closes its end delay no caller
	p = x.python(t, "import os\nos.write(1, b'x')\nwhile True: os.write(3, b'y' * 1000000)")
	p.Channels = 1
	r, _, _ = x.start(t, p)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait on a program that is stuck: %v", err)
	}
	p = x.python(t, "import os, time\nos.close(3)\ntime.sleep(0.3)")
	p.Channels = 1
	r2, _, _ := x.start(t, p)
	if n, err := r2.Channel(0).Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read from a closed channel: %d, %v", n, err)
	}
	if err := x.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r.Channel(0)); err != nil {
		t.Errorf("the channel does not end with the sandbox: %v", err)
	}
	plain, _, _ := s.open(t).start(t, backend.Process{Argv: []string{"/bin/sh", "-c", ":"}})
	if plain.Channel(0) != nil {
		t.Error("a channel that nobody asked for")
	}
}
