package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// stdinOpen: after its first bytes, an open stdin carries what is written while the process runs.
// It ends when it is closed.
func stdinOpen(t *testing.T, s *suite) {
	x := s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "while IFS= read -r l; do echo got $l; done; echo end"}, Stdin: []byte("first\n"), OpenStdin: true})
	for _, line := range []string{"second", "third"} {
		if n, err := r.WriteStdin(ctx, []byte(line+"\n")); err != nil || n != len(line)+1 {
			t.Fatalf("WriteStdin: %d, %v", n, err)
		}
		if !soon(t, patience, func() bool { return strings.Contains(out.String(), "got "+line) }) {
			t.Fatalf("got %q (%q), want %s", out.String(), errs.String(), line)
		}
	}
	for range 2 {
		if err := r.CloseStdin(ctx); err != nil {
			t.Errorf("CloseStdin: %v", err)
		}
	}
	if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{}) {
		t.Errorf("Wait: %+v, %v", e, err)
	}
	if err := r.Drain(ctx); err != nil || out.String() != "got first\ngot second\ngot third\nend\n" {
		t.Errorf("output: got %q, %v", out.String(), err)
	}
	if _, err := r.WriteStdin(ctx, []byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after CloseStdin: got %v, want %v", err, fs.ErrClosed)
	}

	// A process that does not read delays WriteStdin only until the context ends. A process that
	// has ended takes no bytes.
	r, _, _ = x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "sleep 30; :"}, OpenStdin: true})
	short, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer end()
	if n, err := r.WriteStdin(short, bytes.Repeat([]byte("x"), 1<<20)); !errors.Is(err, context.DeadlineExceeded) || n >= 1<<20 {
		t.Errorf("to a process that does not read: got %d, %v, want %v", n, err, context.DeadlineExceeded)
	}
	if err := x.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteStdin(ctx, bytes.Repeat([]byte("x"), 1<<20)); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Kill: got %v, want %v", err, syscall.EPIPE)
	}
	plain, _, _ := s.open(t).start(t, backend.Process{Argv: []string{"/bin/sh", "-c", ":"}})
	if _, err := plain.WriteStdin(ctx, []byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("without OpenStdin: got %v, want %v", err, fs.ErrClosed)
	}
}

// copiers are programs that copy a stream to another by their names.
func (x *box) copiers() map[string]func(from, to string) []string {
	all := map[string]func(from, to string) []string{
		"shell": func(from, to string) []string { return []string{"/bin/sh", "-c", "cat " + from + " > " + to} },
	}
	if o := x.s.o; o.Python != "" {
		all["python"] = func(from, to string) []string {
			return []string{o.Python, "-c", fmt.Sprintf("open(%q, 'wb').write(open(%q, 'rb').read())", to, from)}
		}
	}
	if o := x.s.o; o.Node != "" {
		all["node"] = func(from, to string) []string {
			return []string{o.Node, "-e", fmt.Sprintf("const fs = require('fs'); fs.writeFileSync(%q, fs.readFileSync(%q))", to, from)}
		}
	}
	return all
}

// streamsByName: a program can open its standard streams by their names, in every language. It
// holds with bytes on stdin, with an open stdin and with none, and in every later sandbox of a
// kind, which may have been ready.
func streamsByName(t *testing.T, s *suite) {
	testkit.Need(t, "python", s.o.Python != "", "no interpreter that a sandbox can see")
	testkit.Need(t, "node", s.o.Node != "", "no interpreter that a sandbox can see")
	for _, n := range []int{1, 2} {
		x := s.open(t, func(sp *backend.Spec) { sp.MemoryBytes = 512 * mib })
		for name, argv := range x.copiers() {
			for _, from := range []string{"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"} {
				e := x.run(t, backend.Process{Argv: argv(from, "/dev/stdout"), Stdin: []byte("in\n")})
				if e != (ended{Out: "in\n"}) {
					t.Errorf("sandbox %d, %s: from %s to /dev/stdout: got %+v, want %q on stdout", n, name, from, e, "in\n")
				}
			}
			e := x.run(t, backend.Process{Argv: argv("/dev/stdin", "/dev/stderr"), Stdin: []byte("in\n")})
			if e != (ended{Err: "in\n"}) {
				t.Errorf("sandbox %d, %s: from /dev/stdin to /dev/stderr: got %+v, want %q on stderr", n, name, e, "in\n")
			}
			if e := x.run(t, backend.Process{Argv: argv("/dev/stdin", "/dev/stdout")}); e != (ended{}) {
				t.Errorf("sandbox %d, %s: from /dev/stdin without bytes: got %+v, want nothing", n, name, e)
			}
			r, out, errs := x.start(t, backend.Process{Argv: argv("/dev/stdin", "/dev/stdout"), Stdin: []byte("first\n"), OpenStdin: true})
			_, _ = r.WriteStdin(t.Context(), []byte("second\n")) // fails if the program could not open it
			_ = r.CloseStdin(t.Context())
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.Drain(t.Context()); err != nil || out.String() != "first\nsecond\n" {
				t.Errorf("sandbox %d, %s: from an open /dev/stdin: got %q, %q, %v", n, name, out.String(), errs.String(), err)
			}
		}
	}
}

// mkdirAndRename: Mkdir and Rename change the working directory, and nothing above it.
func mkdirAndRename(t *testing.T, s *suite) {
	x := s.open(t)
	ctx, files := t.Context(), x.Files()
	for _, name := range []string{"a", "a", "b/c/d"} {
		if err := files.Mkdir(ctx, name); err != nil {
			t.Errorf("Mkdir %s: %v", name, err)
		}
	}
	x.sh(t, "echo one > a/one; echo two > two; ln -s .. up; ln -s a inside; touch b/c/own && rmdir b/c/d && mkdir b/c/d")
	for _, name := range []string{"two", "up", "inside"} {
		if err := files.Mkdir(ctx, name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Mkdir %s: got %v, want %v", name, err, fs.ErrExist)
		}
	}
	for _, name := range []string{"up/x", "../x", "/x", "two/x", "inside/x", "..", ""} {
		if err := files.Mkdir(ctx, name); err == nil {
			t.Errorf("Mkdir %q: no error", name)
		}
	}
	for _, c := range [][2]string{{"a/one", "up/one"}, {"a/one", "../one"}, {"a/one", "inside/x"}, {"up/data", "x"}, {"/etc/passwd", "x"}, {"missing", "x"}, {"a/one", "missing/x"}, {"a", "a/b"}, {"a/one", "b"}} {
		if err := files.Rename(ctx, c[0], c[1], true); err == nil {
			t.Errorf("Rename %q to %q: no error", c[0], c[1])
		}
	}
	if err := files.Rename(ctx, "a/one", "two", false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Rename to a name that is there: got %v, want %v", err, fs.ErrExist)
	}
	for _, c := range []struct {
		from, to  string
		overwrite bool
	}{{"a/one", "two", true}, {"two", "b/c/three", false}, {"up", "link", false}, {"b", "e", false}, {"a", "e/c/d", true}} {
		if err := files.Rename(ctx, c.from, c.to, c.overwrite); err != nil {
			t.Errorf("Rename %s to %s: %v", c.from, c.to, err)
		}
	}
	if got, want := x.sh(t, "find . | sort | tr '\\n' ' '; cat e/c/three"), ". ./e ./e/c ./e/c/d ./e/c/own ./e/c/three ./inside ./link one\n"; got != want {
		t.Errorf("inside: got %q, want %q", got, want)
	}
}
