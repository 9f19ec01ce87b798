package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestUsualRulesReadNothingElse: whatever the files of its directory tell a program, a command of the default rules cannot read files
// beside that directory, nor what a program in a sandbox has put beside the program. The rules have walls of their own, so a program
// that reads any file is executed in place of each.
func TestUsualRulesReadNothingElse(t *testing.T) {
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	testkit.Need(t, "Landlock", int(abi) > 0, "a kernel with Landlock")
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir := filepath.Dir(file("ws/project/inside", "own"))
	outside, library := file("outside/x", "other"), file("ws/lib/x", "planted")
	file("ws/project/.git/HEAD", "ref: refs/heads/x\n")
	cat, err := find("cat")
	if err != nil || cat.path == "" {
		t.Fatalf("there is no cat: %v", err)
	}
	tool := newProgram(file("ws/bin/tool", "\x7fELF"))
	read := func(path string, only []string) string {
		f, err := cat.open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		e, err := execute(t.Context(), job{file: f, path: cat.path, words: []string{"cat", path}, dir: "/", only: only, execs: cat.execs, last: true, timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return string(e.stdout)
	}
	if got := read(outside, nil); got != "other" {
		t.Fatalf("without places: got %q, want the file, or the test shows nothing", got)
	}
	for text, u := range known() {
		words := strings.Fields(text)
		h := &Host{cfg: Config{Changeable: filepath.Join(base, "ws")}}
		_, only, err := h.only(&Rule{Words: words[1:], usual: u, program: tool}, words, dir, []string{filepath.Join(dir, "inside")})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for path, want := range map[string]string{outside: "", library: "", filepath.Join(dir, "inside"): map[bool]string{true: "own"}[u.places != nil]} {
			if got := read(path, only); got != want {
				t.Errorf("%s: %s: got %q, want %q", text, path, got, want)
			}
		}
		h.cfg.Changeable = ""
		if _, only, err = h.only(&Rule{Words: words[1:], usual: u, program: tool}, words, dir, nil); err != nil || read(library, only) != "planted" {
			t.Errorf("%s: %v, want what is beside the program if no sandbox can change it", text, err)
		}
	}
}

// TestUsualRulesReadNothingThatAMountShows: the workspace may be shown once more in a place of the system.
func TestUsualRulesReadNothingThatAMountShows(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(base, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	tool, own, planted := write("opt/bin/tool", "\x7fELF"), write("opt/lib/own", "own"), write("opt/lib/shown/x", "")
	shown := filepath.Dir(planted)
	if err = unix.Mount(filepath.Dir(write("ws/x", "planted")), shown, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(shown, unix.MNT_DETACH) })
	h := &Host{cfg: Config{Changeable: filepath.Join(base, "ws")}}
	_, only, err := h.only(&Rule{usual: &usual{}, program: newProgram(tool)}, []string{"tool"}, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := runWith(t, "cat", job{words: []string{"cat", own, planted}, only: only, last: true}); string(e.stdout) != "own" {
		t.Errorf("got %q, want only what no program in a sandbox can change", e.stdout)
	}
}
