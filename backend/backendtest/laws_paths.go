package backendtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// inside returns the paths that programs have for WorkDir, ProgramDir and TempDir.
func (x *box) inside(t *testing.T) (work, program, temp string) {
	t.Helper()
	lines := strings.Split(x.sh(t, `printf '%s\n' "$WORK" "$PROGRAM" "$TMPDIR"`), "\n")
	if len(lines) != 4 {
		t.Fatalf("paths of the sandbox: got %q, want three lines", lines)
	}
	return lines[0], lines[1], lines[2]
}

// pathsAreReplacedWhole: in arguments, values of the environment and Dir, a path of the sandbox is
// replaced if it is the whole string or stands before a slash. Nothing else is changed.
func pathsAreReplacedWhole(t *testing.T, s *suite) {
	x := s.open(t)
	work, program, temp := x.inside(t)
	var given, want []string
	for path, at := range map[string]string{backend.WorkDir: work, backend.ProgramDir: program, backend.TempDir: temp} {
		given = append(given, path, path+"/a b/c", path+"/")
		want = append(want, at, at+"/a b/c", at+"/")
		for _, v := range []string{path + "X", path + "X/y", path + ".x", path + " ", path + ":" + path, "x" + path, "--to=" + path, " " + path + "/x", "." + path} {
			given, want = append(given, v), append(want, v)
		}
	}
	lines := func(list []string) string { return strings.Join(list, "\n") + "\n" }
	e := x.run(t, backend.Process{Argv: append([]string{"/bin/sh", "-c", `printf '%s\n' "$@"`, "sh"}, given...)})
	if diff := cmp.Diff(lines(want), e.Out); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	var got []string
	for _, v := range given {
		e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", `printf %s "$V"`}, Env: []string{"PATH=/usr/bin:/bin", "V=" + v}})
		got = append(got, e.Out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values of the environment (-want +got):\n%s", diff)
	}
	if err := x.Files().Mkdir(t.Context(), "sub"); err != nil {
		t.Fatal(err)
	}
	if e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", `[ "$(pwd -P)" = "$(cd "$WORK/sub" && pwd -P)" ] && echo sub`}, Dir: backend.WorkDir + "/sub"}); e.Out != "sub\n" {
		t.Errorf("with Dir %s/sub: got %q %q, want that the program runs there", backend.WorkDir, e.Out, e.Err)
	}
	_ = x.fails(t, backend.Process{Argv: []string{"/bin/sh", "-c", ":"}, Dir: backend.WorkDir + "X"})
}

// providedFilesAreRead: a running program can read a value after Provide.
func providedFilesAreRead(t *testing.T, s *suite) {
	x := s.open(t)
	ctx := t.Context()
	r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", `echo up
		until [ -e "$PROGRAM/deep/er/last" ]; do sleep 0.02; done
		cat "$PROGRAM/bridge/value" "$PROGRAM/plain"; sleep 60; :`}})
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatalf("the program does not come up: %q %q", out.String(), errs.String())
	}
	for _, list := range [][]backend.ProgramFile{
		{{Name: "bridge/value", Data: []byte("old\n")}},
		{{Name: "bridge/value", Data: []byte("\xffnew\n")}, {Name: "plain", Data: []byte("two\n")}},
		{{Name: "deep/er/last"}},
	} {
		if err := x.Provide(ctx, list); err != nil {
			t.Errorf("Provide %s: got %v, want nil", list[0].Name, err)
		}
	}
	want := "up\n\xffnew\ntwo\n"
	if !soon(t, endLimit, func() bool { return out.String() == want }) {
		t.Errorf("provided while the program runs: got %q %q, want %q", out.String(), errs.String(), want)
	}
	_ = r.Signal(ctx, 9)
	if got, want := x.sh(t, `cat "$PROGRAM/bridge/value"`), "\xffnew\n"; got != want {
		t.Errorf("by a program that was started later: got %q, want %q", got, want)
	}
	if s.walls() {
		got := x.sh(t, `cd "$PROGRAM"; (echo x > bridge/value) 2>/dev/null && echo written; (echo x > bridge/new) 2>/dev/null && echo made; rm -f plain 2>/dev/null; [ -e plain ] || echo removed; :`)
		if got != "" {
			t.Errorf("a program tries to change a provided value: got %q, want nothing", got)
		}
	}
	for _, name := range []string{"../x", "/x", "..", "bridge/../../x", ""} {
		if err := x.Provide(ctx, []backend.ProgramFile{{Name: name, Data: []byte("x")}}); err == nil {
			t.Errorf("Provide %q: got nil, want an error", name)
		}
	}
}

// closeRemovesDirectories: Close removes the directories that a sandbox has on this machine. Of a
// sandbox with a file system of its own, or on another machine, nothing is seen here.
func closeRemovesDirectories(t *testing.T, s *suite) {
	x, other := s.open(t), s.open(t)
	var paths [2][3]string
	for i, y := range []*box{x, other} {
		paths[i][0], paths[i][1], paths[i][2] = y.inside(t)
		y.sh(t, `mkdir -p "$WORK/dir/deep"; echo x > "$WORK/dir/deep/file"; echo x > "$TMPDIR/file"; chmod 0 "$WORK/dir"`)
	}
	var own []string // what only the first sandbox has
	for i, path := range paths[0] {
		if path != paths[1][i] {
			own = append(own, path, apart(path, paths[1][i]))
		}
	}
	if err := x.Close(t.Context()); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	for _, path := range own {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s after Close: got %v, want %v", path, err, fs.ErrNotExist)
		}
	}
	if got := other.sh(t, `ls "$WORK"`); got != "dir\n" {
		t.Errorf("the other sandbox: got %q, want its directory", got)
	}
}

// apart returns the highest directory of path that is not also one of other.
func apart(path, other string) string {
	for {
		up := filepath.Dir(path)
		if up == path || other == up || strings.HasPrefix(other, strings.TrimSuffix(up, "/")+"/") {
			return path
		}
		path = up
	}
}
