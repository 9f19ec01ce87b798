package backendtest

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// traps opens a sandbox whose working directory is full of links, FIFOs and other traps (E01).
func traps(t *testing.T, s *suite) *box {
	t.Helper()
	x := s.open(t)
	if e := x.run(t, x.python(t, "e01-traps.py")); e.Out != "done\n" {
		t.Fatalf("traps: %q %q", e.Out, e.Err)
	}
	return x
}

func filesCannotLeave(t *testing.T, s *suite) {
	x := traps(t, s)
	check := func(when string) {
		files := x.Files()
		for _, name := range []string{
			"link", "dirlink/canary", "dirlink", "inside-link", "inside-dirlink/inner", "loop", "magic", "procroot", "up", "up/x", "up/" + "data/plain",
			"..", "../x", "../../etc/passwd", "dir/../../x", "/etc/passwd", "/", s.canaries()[0], "./../x", "up/../plain",
			"fifo", "socket", ".", "dir", "many", "missing", "", "plain/", "plain/x", "a\x00b",
		} {
			begin := time.Now()
			f, err := files.Open(t.Context(), name)
			if err == nil {
				b, _ := io.ReadAll(io.LimitReader(f, 100))
				_ = f.Close()
				t.Errorf("%s: Open(%q) gives %q", when, name, b)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("%s: Open(%q) took %v", when, name, took)
			}
			if name == "fifo" || name == "socket" || name == "dir" || name == "link" || name == "inside-link" || name == "loop" {
				// a sandbox that cannot make sockets has none to open
				if !errors.Is(err, fs.ErrInvalid) && !(name == "socket" && errors.Is(err, fs.ErrNotExist)) {
					t.Errorf("%s: Open(%q): got %v, want %v", when, name, err, fs.ErrInvalid)
				}
			}
		}
		for _, name := range []string{"dirlink", "inside-dirlink", "up", "..", "/", "/etc", "../..", "fifo", "plain", "up/data", "missing"} {
			if list, _, err := files.List(t.Context(), name, 10); err == nil {
				t.Errorf("%s: List(%q) gives %+v", when, name, list)
			}
		}
		for name, want := range map[string]string{"plain": "plain", "dir/inner": "inner", "hard": "plain", "./dir/./inner": "inner", "new\nline": "x", "\xff\xfe": "x", "back\\slash": "x"} {
			f, err := files.Open(t.Context(), name)
			if err != nil {
				t.Errorf("%s: Open(%q): %v", when, name, err)
				continue
			}
			if b, err := io.ReadAll(f); err != nil || string(b) != want {
				t.Errorf("%s: Open(%q) gives %q, %v, want %q", when, name, b, err, want)
			}
			_ = f.Close()
		}
	}
	check("alive")
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("killed")
	f, err := x.Files().Open(t.Context(), "sparse")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(t.Context()); err != nil || st.Size != 1<<40 || st.Blocks > 100 && s.o.Lacks["blocks of sparse files"] == "" || !st.Mode.IsRegular() {
		t.Errorf("sparse file: %+v, %v; want its size and that it holds nothing", st, err)
	}
}

func filesList(t *testing.T, s *suite) {
	x := traps(t, s)
	files := x.Files()
	for _, c := range []struct {
		limit, want int
		more        bool
	}{{0, 0, true}, {1, 1, true}, {50, 50, true}, {119, 119, true}, {120, 120, false}, {1000, 120, false}} {
		list, more, err := files.List(t.Context(), "many", c.limit)
		if err != nil || len(list) != c.want || more != c.more {
			t.Errorf("List(many, %d): %d entries, more %v, %v; want %d, %v", c.limit, len(list), more, err, c.want, c.more)
		}
	}
	if list, more, err := files.List(t.Context(), "dir", 10); err != nil || more || len(list) != 1 || list[0].Name != "inner" {
		t.Errorf("List(dir): %+v %v %v", list, more, err)
	}
	list, _, err := files.List(t.Context(), ".", 1000)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]backend.FileInfo{}
	for _, e := range list {
		seen[e.Name] = e
	}
	for name, typ := range map[string]fs.FileMode{"link": fs.ModeSymlink, "dirlink": fs.ModeSymlink, "fifo": fs.ModeNamedPipe, "dir": fs.ModeDir, "plain": 0, "sparse": 0, "\xff\xfe": 0, "new\nline": 0} {
		if e, ok := seen[name]; !ok || e.Mode.Type() != typ {
			t.Errorf("entry %q: got %+v, want type %v", name, e, typ)
		}
	}
	if e := seen["hard"]; e.Links != 2 || e.Size != 5 {
		t.Errorf("hard link: %+v, want two links and five bytes", e)
	}
	if e := seen["plain"]; time.Since(e.ModTime) > time.Hour || time.Until(e.ModTime) > time.Hour {
		t.Errorf("time of a new file: %v", e.ModTime)
	}
	raced(t, s)
}

// namesAreDated: a program that adds, removes or renames an entry cannot hide that in the time of the directory's last
// change. What it changes in a file does not count.
func namesAreDated(t *testing.T, s *suite) {
	x := s.open(t)
	d, ok := x.Files().(backend.Dated)
	if !ok {
		t.Skip("the backend does not tell when the directory changed")
	}
	at := func() time.Time {
		t.Helper()
		changed, err := d.Changed()
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	for _, c := range []struct {
		code string
		seen bool
	}{
		{`open("a", "w").write("1")`, true},
		{`open("a", "w").write("22")`, false},
		{`os.rename("a", "b")`, true},
		{`os.mkdir("c")`, true},
		{`open("c/d", "w").write("1")`, false},
		{`os.link("b", "e")`, true},
		{`os.unlink("b")`, true},
		{`os.rename("c/d", "f")`, true},
	} {
		before, hide := at(), ""
		if c.seen {
			hide = `os.utime(".", ns=(was.st_atime_ns, was.st_mtime_ns))`
		}
		time.Sleep(20 * time.Millisecond) // longer than a tick of a file system's clock
		e := x.run(t, x.python(t, `
import os
os.chdir(os.environ["WORK"])
was = os.stat(".")
`+c.code+"\n"+hide+`
print("done")
`))
		if e.Out != "done\n" {
			t.Fatalf("%s: %q %q", c.code, e.Out, e.Err)
		}
		if seen := !at().Equal(before); seen != c.seen {
			t.Errorf("%s: got a change %v, want %v", c.code, seen, c.seen)
		}
	}
	if err := x.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Changed(); err == nil {
		t.Error("the time can be read after Close")
	}
}

// raced opens a name that the program repeatedly changes from a file into a link and back.
func raced(t *testing.T, s *suite) {
	t.Helper()
	x := s.open(t)
	marker := "racer-" + rand.Text()
	r, out, _ := x.start(t, x.python(t, `
import os, sys, time
os.chdir(os.environ["WORK"])
canary = open(os.environ["PROGRAM"] + "/canary").read().split("\n")[0]
open("f0", "w").write("mine"); os.mkdir("d0"); open("d0/canary", "w").write("mine")
os.symlink(canary, "l0"); os.symlink(os.path.dirname(canary), "s0")
print("up", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    os.link("f0", "t"); os.rename("t", "f")
    os.symlink(canary, "t"); os.rename("t", "f")
    try: os.unlink("t")
    except OSError: pass
    for a in ("d0", "s0"):
        os.rename(a, "d"); os.rename("d", a)
`, marker))
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatal("the racer does not come up")
	}
	opened := 0
	for n := 0; n < 20_000 || opened < 100 && n < 1_000_000; n++ { // longer while the other program gets no processor time
		for _, name := range []string{"f", "d/canary"} {
			f, err := x.Files().Open(t.Context(), name)
			if err != nil {
				continue
			}
			opened++
			if b, err := io.ReadAll(io.LimitReader(f, 100)); err != nil || string(b) != "mine" {
				t.Errorf("the race gave %q, %v", b, err)
			}
			_ = f.Close()
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d opens found a file", opened)
	if opened == 0 {
		t.Error("the race never found a file: it shows nothing")
	}
	_ = x.Kill(t.Context())
	_, _ = r.Wait(t.Context())
}
