package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
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
	dir := filepath.Dir(file("project/inside", "own"))
	outside, library := file("outside/x", "other"), file("ws/lib/x", "planted")
	file("project/.git/HEAD", "ref: refs/heads/x\n")
	cat, err := find("cat")
	if err != nil || cat.path == "" {
		t.Fatalf("there is no cat: %v", err)
	}
	tool := newProgram(file("ws/bin/tool", "\x7fELF"))
	read := func(path string, s scope) string {
		f, err := cat.open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		e, err := execute(t.Context(), job{file: f, path: cat.path, words: []string{"cat", path}, dir: "/", only: s.reads, lists: s.lists, execs: cat.execs, last: true, timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return string(e.stdout)
	}
	if got := read(outside, scope{}); got != "other" {
		t.Fatalf("without places: got %q, want the file, or the test shows nothing", got)
	}
	for text, u := range known() {
		words := strings.Fields(text)
		h := &Host{cfg: Config{Changeable: filepath.Join(base, "ws")}}
		only, err := h.only(t.Context(), &Rule{Words: words[1:], usual: u, program: tool}, words, dir, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for path, want := range map[string]string{outside: "", library: "", filepath.Join(dir, "inside"): map[bool]string{true: "own"}[words[0] == "git" || words[0] == "npm"]} {
			if got := read(path, only); got != want {
				t.Errorf("%s: %s: got %q, want %q", text, path, got, want)
			}
		}
		h.cfg.Changeable = ""
		if only, err = h.only(t.Context(), &Rule{Words: words[1:], usual: u, program: tool}, words, dir, nil); err != nil || read(library, only) != "planted" {
			t.Errorf("%s: %v, want what is beside the program if no sandbox can change it", text, err)
		}
	}
	h := &Host{cfg: Config{Changeable: filepath.Join(base, "ws")}}
	only, err := h.only(t.Context(), &Rule{Words: list("list"), usual: known()["npm list"], program: tool}, list("npm list -g"), base, nil)
	if err != nil || read(library, only) != "" {
		t.Errorf("npm list in a directory without a project that contains what sandboxes can change: %v, want nothing of that", err)
	}
}

// TestProgramsReadNoDataOfApplications: files of a directory, such as the configuration of git, can name any file, so the places of
// programs have none in which the system keeps whole applications, nor what lies in a directory of / beside that of a loader.
func TestProgramsReadNoDataOfApplications(t *testing.T) {
	for text, u := range known() {
		words := strings.Fields(text)
		p, err := find(words[0])
		if err != nil {
			t.Fatal(err)
		}
		only, err := (&Host{}).only(t.Context(), &Rule{Words: words[1:], usual: &usual{reads: u.reads, python: u.python}, program: p}, words, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, needed := range []string{"/etc/crypto-policies", "/usr/share/crypto-policies"} { // Fedora's openssl.cnf leads through both, and node fails without
			if !slices.Contains(only.reads, plainfile.Unlinked(needed)) {
				t.Errorf("%s: %s cannot be read", text, needed)
			}
		}
		for _, secret := range []string{"/share/x", "/node_modules/x", "/usr/share/x", "/usr/local/share/x", "/usr/libexec/x"} {
			for _, place := range only.reads {
				if under(secret, place) {
					t.Errorf("%s: %s can be read, because of %s", text, secret, place)
				}
			}
		}
	}
}

// TestFilesAloneAreNamed: a word that names a directory, or nothing yet, allows no file that a link leads to later.
func TestFilesAloneAreNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := named(further{dir: dir}); err != nil || len(s.reads)+len(s.lists) > 0 {
		t.Errorf("no words: got %+v, %v, want nothing", s, err)
	}
	if s, err := named(further{dir: "/", named: []string{dir, file}}); err != nil || !slices.Equal(s.reads, []string{file}) || !slices.Equal(s.lists, []string{dir}) {
		t.Errorf("got %+v, %v, want the file, and the names in the directory", s, err)
	}
}

// TestEditablePackages: of a package that is installed where its source is, pip reads what is about it, unless programs in sandboxes can
// change that.
func TestEditablePackages(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"lib/python3.11/site-packages/e.pth": "import os\n" + base + "/src\n" + base + "/*\nrelative\n" + base + "/ws/src\n" + base + "/none\n",
		"src/p.egg-info/PKG-INFO":            "", "src/p/code.py": "", "ws/src/q.dist-info/METADATA": "", "other/r.egg-info/PKG-INFO": "", "bin/pip": "#!/bin/sh\n",
	} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err = os.Symlink("../other", filepath.Join(base, "src/s.egg-info")); err != nil {
		t.Fatal(err)
	}
	h := &Host{cfg: Config{Changeable: filepath.Join(base, "ws")}}
	only, err := h.only(t.Context(), &Rule{Words: list("list"), usual: known()["pip list"], program: newProgram(base + "/bin/pip")}, list("pip list"), base, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/src/p.egg-info/PKG-INFO": true, "/src/p/code.py": false, "/ws/src/q.dist-info/METADATA": false, "/other/r.egg-info/PKG-INFO": false} {
		if got := slices.ContainsFunc(only.reads, func(p string) bool { return under(base+path, p) }); got != want {
			t.Errorf("%s can be read: got %v, want %v", path, got, want)
		}
	}
}

// TestASourceDirectoryIsReadOnce: it can have many spellings, and many entries.
func TestASourceDirectoryIsReadOnce(t *testing.T) {
	base := t.TempDir()
	source, packages := filepath.Join(base, "src"), filepath.Join(base, "lib/python3.11/site-packages")
	err := os.MkdirAll(packages, 0o755)
	for i := range 100 {
		err = errors.Join(err, os.MkdirAll(filepath.Join(source, strconv.Itoa(i)+".egg-info"), 0o755))
	}
	text := ""
	for i := range 200 {
		text += source + strings.Repeat("/.", i) + "\n"
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(packages, "e.pth"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	var all []string
	allocs := testing.AllocsPerRun(1, func() { all = editable([]string{base + "/lib"}, func(string) bool { return false }) })
	if len(all) != 100 || allocs > 10_000 {
		t.Errorf("got %d places with %.0f allocations, want 100 of a directory that is read once", len(all), allocs)
	}
}

// TestPipListsDirectories: pip fails at a directory of its path that it may not list.
func TestPipListsDirectories(t *testing.T) {
	for text, u := range known() {
		if u.python != strings.HasPrefix(text, "pip") {
			t.Errorf("%s lists all directories: got %v", text, u.python)
		}
	}
	rules := landlockRules(job{only: []string{}, execs: []string{}, lists: []string{"/"}})
	if r := rules[0]; r.Path != "/" || !r.List || r.Read || r.Exec || r.Write {
		t.Errorf("got %+v, want that the names of all directories can be read, and nothing else", r)
	}
}

// TestAMountOfTheWorkspaceIsNoPlaceOfPrograms: a mount may show what programs in sandboxes can change among the libraries of a program.
func TestAMountOfTheWorkspaceIsNoPlaceOfPrograms(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"ws", "tool/lib/again", "tool/lib/own", "tool/bin"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(base+"/tool/bin/tool", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(base+"/ws", base+"/tool/lib/again", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(base+"/tool/lib/again", unix.MNT_DETACH) })
	h := &Host{cfg: Config{Changeable: base + "/ws"}}
	only, err := h.only(t.Context(), &Rule{usual: &usual{}, program: newProgram(base + "/tool/bin/tool")}, list("tool"), base, nil)
	for path, want := range map[string]bool{"/tool/lib/again": false, "/tool/lib/own": true} {
		if got := slices.ContainsFunc(only.reads, func(p string) bool { return under(base+path, p) }); got != want || err != nil {
			t.Errorf("%s can be read: got %v, %v, want %v", path, got, err, want)
		}
	}
}

// TestUsualRulesHaveTheSocketsThatTheyNeed: only programs that ask others for what they show make sockets.
func TestUsualRulesHaveTheSocketsThatTheyNeed(t *testing.T) {
	var got []string
	for name, u := range known() {
		if first, _, _ := strings.Cut(name, " "); u.sockets && !slices.Contains(got, first) {
			got = append(got, first)
		}
	}
	slices.Sort(got)
	if want := []string{"docker", "hostname", "ls", "systemctl", "whoami"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestALargeDirectoryIsNotReadToItsEnd: there may be more files than fit into memory.
func TestALargeDirectoryIsNotReadToItsEnd(t *testing.T) {
	dir := t.TempDir()
	for i := range 5000 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole := false
	allocs := testing.AllocsPerRun(1, func() {
		left := 10
		_, whole = secretsIn(dir, &left)
	})
	if whole || allocs > 1000 {
		t.Errorf("got %v with %.0f allocations, want that it is given up after ten entries", whole, allocs)
	}
	allocs = testing.AllocsPerRun(1, func() {
		left := -1 // after another directory of a project
		_, whole = secretsIn(dir, &left)
	})
	if whole || allocs > 100 {
		t.Errorf("got %v with %.0f allocations for the next directory, want that it is not read", whole, allocs)
	}
}

// TestEntriesWithLongPathsCountForMore: the paths of many entries of a deep directory do not fit into memory.
func TestEntriesWithLongPathsCountForMore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 250), strings.Repeat("d", 250))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if err := os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for budget, fits := range map[int]bool{8 * weight(dir): true, 8*weight(dir) - 1: false} {
		left := budget
		if _, whole := secretsIn(dir, &left); whole != fits {
			t.Errorf("secrets with %d: got that the whole directory was looked at: %v, want %v", budget, whole, fits)
		}
		left = budget
		if links := linksIn(dir, &left); (len(links) == 8) != fits || left < 0 {
			t.Errorf("links with %d: got %d and %d left, want all: %v", budget, len(links), left, fits)
		}
	}
	if weight(dir) < 2 {
		t.Errorf("got %d for an entry of a long path, want more than one", weight(dir))
	}
}

// TestADirectoryMayBeAFIFO: others may exchange a directory for a FIFO that is there, before it is listed.
func TestADirectoryMayBeAFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	left := 10
	found, whole := secretsIn(fifo, &left)
	if all := slices.Concat(besides(fifo, []string{fifo + "/x"}), linksIn(fifo, &left), (&namesIn{}).spelled(fifo, ".ssh"), found); len(all) > 0 || !whole {
		t.Errorf("got %q, %v, want nothing", all, whole)
	}
}

// TestFileToolsReadWhatProgramsInTheWorkspaceMayRead: a program in a sandbox can rename a directory there, whose name alone hides files of root in it.
func TestFileToolsReadWhatProgramsInTheWorkspaceMayRead(t *testing.T) {
	testkit.Need(t, "root", os.Geteuid() == 0, "root")
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := filepath.Join(base, "ws")
	if err := errors.Join(os.Mkdir(ws, 0o755), os.Chown(ws, 65533, 65532)); err != nil {
		t.Fatal(err)
	}
	h := &Host{cfg: Config{Changeable: ws}}
	h.Files = &Files{host: h}
	h.Files.SetRoots([]string{base})
	for _, c := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
		want     bool
	}{
		{"ws/own", 65533, 0, 0o600, true},
		{"ws/group", 0, 65532, 0o640, true},
		{"ws/all", 0, 0, 0o644, true},
		{"ws/roots", 0, 0, 0o600, false},
		{"ws/others", 1, 0, 0o640, false},
		{"beside", 0, 0, 0o600, true},
	} {
		path := filepath.Join(base, c.name)
		if err := errors.Join(os.WriteFile(path, nil, c.mode), os.Chown(path, c.uid, c.gid)); err != nil {
			t.Fatal(err)
		}
		f, _, err := h.Files.openFile(path)
		if (err == nil) != c.want {
			t.Errorf("%s: got %v, want that it can be read: %v", c.name, err, c.want)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}

// TestBorrowedObjectsTakeLittleMemory: a list of directories from which a repository borrows can have thousands of lines, and each gets the path of its
// directory.
func TestBorrowedObjectsTakeLittleMemory(t *testing.T) {
	top := t.TempDir()
	for i := range maxBorrowed {
		dir, text := filepath.Join(top, strconv.Itoa(i)), strings.Repeat("\n", 2000)
		if i == 0 { // it names the others
			text = ""
			for next := range maxBorrowed {
				text += "../../" + strconv.Itoa(next) + "/objects\n"
			}
		}
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "objects/info"), 0o755), os.Mkdir(filepath.Join(dir, "refs"), 0o755), os.WriteFile(filepath.Join(dir, "HEAD"), nil, 0o644),
			os.WriteFile(filepath.Join(dir, "objects/info/alternates"), []byte(text), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	var p gitParts
	allocs := testing.AllocsPerRun(1, func() {
		p = gitParts{}
		p.borrow(func() error { return nil }, filepath.Join(top, "0/objects"))
	})
	if len(p.places) < maxBorrowed-1 || allocs > 100_000 {
		t.Errorf("got %d places with %.0f allocations, want almost all, and no path for each line", len(p.places), allocs)
	}
	p, left := gitParts{}, 3
	p.borrow(func() error {
		if left--; left < 0 {
			return context.Canceled
		}
		return nil
	}, filepath.Join(top, "0/objects"))
	if len(p.ways) != 3 {
		t.Errorf("got %d directories that were looked at, want three, and then the end of the command's time", len(p.ways))
	}
}
