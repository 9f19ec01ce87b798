package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// watch opens a watch, which is closed when the test ends.
func (x *box) watch(t *testing.T, name string) backend.Watch {
	t.Helper()
	w, err := x.Files().Watch(t.Context(), name)
	if err != nil {
		t.Fatalf("Watch %s: %v", name, err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := w.Close(); err != nil {
				t.Errorf("Close of a watch: %v", err)
			}
		}
	})
	return w
}

// hears waits until a watch has reported all wanted changes, as "op name". It returns the other
// changes that it has reported.
func hears(t *testing.T, w backend.Watch, want ...string) (others []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	left := map[string]bool{}
	for _, c := range want {
		left[c] = true
	}
	for len(left) > 0 {
		list, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("Next: %v; not reported: %v", err, left)
		}
		for _, c := range list {
			text := string(c.Op) + " " + c.Name
			if !left[text] {
				others = append(others, text)
			}
			delete(left, text)
		}
	}
	return others
}

// changesReported: changes by programs and by the server below a directory are reported, with names
// relative to the working directory. Changes of other directories are not.
func changesReported(t *testing.T, s *suite) {
	x := s.open(t)
	x.sh(t, "mkdir -p dir/sub other; echo a > dir/a; echo b > dir/b; echo c > dir/sub/c; ln -s .. up; ln -s /etc etc")
	all, dir := x.watch(t, "."), x.watch(t, "dir/../dir")
	quiet(t, all)
	x.sh(t, "echo x > other/x; echo new > dir/sub/new; echo more >> dir/a; rm dir/b; mv dir/sub/c dir/d; chmod 755 dir/a 2>/dev/null; ln -s /etc/passwd dir/link; mkfifo dir/fifo; mkdir dir/deep; chmod 700 dir/sub")
	want := []string{"create dir/sub/new", "write dir/a", "remove dir/b", "create dir/d", "create dir/link", "create dir/fifo", "create dir/deep"}
	if s.full() || os.Geteuid() == 0 { // otherwise a change of a mode has no effect
		want = append(want, "chmod dir/sub")
	}
	for name, w := range map[string]backend.Watch{".": all, "dir": dir} {
		for _, o := range hears(t, w, want...) {
			if o != "rename dir/sub/c" && o != "remove dir/sub/c" && o != "chmod dir/a" && o != "write dir/sub/new" && (name != "." || o != "create other/x") {
				t.Errorf("watching %s: got %q, want nothing else", name, o)
			}
		}
	}
	quiet(t, dir)
	if err := x.Files().Put(t.Context(), "dir/put", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	hears(t, dir, "create dir/put")
	if err := x.Files().Put(t.Context(), "dir/put", []byte("longer"), true); err != nil {
		t.Fatal(err)
	}
	hears(t, dir, "write dir/put")
	odd := "\xff\n\x1b[31m"
	if err := x.Files().Put(t.Context(), "dir/deep/"+odd, nil, false); err != nil {
		t.Fatal(err)
	}
	hears(t, dir, "create dir/deep/"+odd)

	for _, name := range []string{"missing", "dir/a", "up", "up/data", "etc", "..", "../..", "/", "/etc", "dir/fifo", "dir/link", "", "a\x00b"} {
		if w, err := x.Files().Watch(t.Context(), name); err == nil {
			_ = w.Close()
			t.Errorf("Watch %q: no error", name)
		}
	}
	x.sh(t, "rm -r dir")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	end := error(nil)
	for end == nil {
		_, end = dir.Next(ctx)
	}
	if !errors.Is(end, fs.ErrNotExist) {
		t.Errorf("when the directory is gone: got %v, want %v", end, fs.ErrNotExist)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // changes from before
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, end = all.Next(short)
		cancel()
	}
	if !errors.Is(end, context.DeadlineExceeded) {
		t.Errorf("after Kill: got %v, want %v", end, context.DeadlineExceeded)
	}
	if err := x.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Next(ctx); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: got %v, want %v", err, fs.ErrClosed)
	}
}

// quiet fails the test if a watch reports anything.
func quiet(t *testing.T, w backend.Watch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if list, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, %v, want no change and %v", list, err, context.DeadlineExceeded)
	}
}

// watchesBounded: the number of watches and of compared entries is bounded. A program that changes
// names without end does not keep the server busy.
func watchesBounded(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.WorkInodes = 3 * backend.MaxWatched })
	var open []backend.Watch
	for range backend.MaxWatches {
		open = append(open, x.watch(t, "."))
	}
	if _, err := x.Files().Watch(t.Context(), "."); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("one more: got %v, want %v", err, syscall.EMFILE)
	}
	closed := make(chan error)
	go func() {
		_, err := open[0].Next(t.Context())
		closed <- err
	}()
	if err := open[0].Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Next of a watch that is closed: got %v, want %v", err, fs.ErrClosed)
	}
	w := x.watch(t, ".")
	script := `
import os, sys
os.chdir(os.environ["WORK"])
for i in range(int(sys.argv[1])): open("f%d" % i, "w").close()
`
	if e := x.run(t, x.python(t, script, "4000")); e.Exit != (backend.Exit{}) {
		t.Fatalf("%+v %s", e.Exit, e.Err)
	}
	hears(t, w, "create f0", "create f3999")
	if e := x.run(t, x.python(t, script, "5000")); e.Exit != (backend.Exit{}) {
		t.Fatalf("%+v %s", e.Exit, e.Err)
	}
	hears(t, w, "lost .")
	x.sh(t, "rm -f f1* f2* f3* f4*")
	hears(t, w, "lost .")
	x.sh(t, "rm -f f*")
	hears(t, w, "remove f5")

	marker := "renamer-" + rand.Text()
	r, out, errs := x.start(t, x.python(t, `
import os, time
os.chdir(os.environ["WORK"])
os.mkdir("a"); at = "a"
for i in range(200): at += "/d"; os.mkdir(at)
print("up", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    os.rename("a", "b"); os.rename("b", "a"); open("a/x", "w").close(); os.unlink("a/x")
`, marker))
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatalf("the renamer does not come up: %q", errs.String())
	}
	began, looks := time.Now(), 0
	for time.Since(began) < 2*time.Second {
		list, err := w.Next(t.Context())
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		looks++
		if len(list) > 2*backend.MaxWatched {
			t.Errorf("got %d changes at once, want at most %d", len(list), 2*backend.MaxWatched)
		}
		for _, c := range list {
			if c.Name != path.Clean(c.Name) || strings.HasPrefix(c.Name, "..") || path.IsAbs(c.Name) {
				t.Errorf("got the name %q, want one below the working directory", c.Name)
			}
		}
	}
	if looks > 30 {
		t.Errorf("got %d answers in two seconds, want at most ten a second", looks)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = r.Wait(t.Context())
}
