package host

import (
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
		only, err := h.only(newBudget(anyTime, maxLooked), &Rule{Words: words[1:], usual: u, program: tool}, words, dir, nil)
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
		if only, err = h.only(newBudget(anyTime, maxLooked), &Rule{Words: words[1:], usual: u, program: tool}, words, dir, nil); err != nil || read(library, only) != "planted" {
			t.Errorf("%s: %v, want what is beside the program if no sandbox can change it", text, err)
		}
	}
	h := &Host{cfg: Config{Changeable: filepath.Join(base, "ws")}}
	only, err := h.only(newBudget(anyTime, maxLooked), &Rule{Words: list("list"), usual: known()["npm list"], program: tool}, list("npm list -g"), base, nil)
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
		only, err := (&Host{}).only(newBudget(anyTime, maxLooked), &Rule{Words: words[1:], usual: &usual{reads: u.reads, python: u.python}, program: p}, words, "/", nil)
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
	only, err := h.only(newBudget(anyTime, maxLooked), &Rule{Words: list("list"), usual: known()["pip list"], program: newProgram(base + "/bin/pip")}, list("pip list"), base, nil)
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
	allocs := testing.AllocsPerRun(1, func() {
		all = editable(newBudget(anyTime, maxLooked), []string{base + "/lib"}, func(string) bool { return false })
	})
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
	only, err := h.only(newBudget(anyTime, maxLooked), &Rule{usual: &usual{}, program: newProgram(base + "/tool/bin/tool")}, list("tool"), base, nil)
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

// TestADirectoryMayBeAFIFO: others may exchange a directory for a FIFO that is there, before it is listed.
func TestADirectoryMayBeAFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBudget(anyTime, maxLooked)
	if all := slices.Concat(besides(b, fifo, []string{fifo + "/x"}), b.linksIn(fifo), (&namesIn{budget: b}).spelled(fifo, ".ssh"), secretsIn(b, fifo)); len(all) > 0 || b.over() != nil {
		t.Errorf("got %q, %v, want nothing", all, b.over())
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
		if _, _, err := h.Files.readPart(t.Context(), path, 0, 1, 1); (err == nil) != c.want {
			t.Errorf("%s: got %v, want that it can be read: %v", c.name, err, c.want)
		}
	}
}
