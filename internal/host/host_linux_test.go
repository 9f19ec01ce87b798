package host_test

import (
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// haveLandlock reports whether the kernel has Landlock.
func haveLandlock() bool {
	_, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	return e == 0
}

func TestSpecialFilesAnswerAtOnce(t *testing.T) {
	b := open(t)
	fifo, sparse := filepath.Join(b.root, "fifo"), filepath.Join(b.root, "sparse")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(sparse)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 38); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	_, err = b.read(fifo)
	wantCode(t, "fifo", err, sandboxmcp.CodeHostPathDenied)
	wantCode(t, "write to a fifo", b.write(fifo, "x"), sandboxmcp.CodeHostPathDenied)
	_, err = b.copy(fifo, "x")
	wantCode(t, "copy a fifo", err, sandboxmcp.CodeHostPathDenied)
	_, err = b.copy(sparse, "x")
	wantCode(t, "copy an endless file", err, sandboxmcp.CodeFileTooLarge)
	if got, err := b.read(sparse); err != nil || !got.Truncated || got.Size != 1<<38 {
		t.Errorf("an endless file: got %d bytes of %d, %v, want a part", len(got.Content), got.Size, err)
	}
	if os.Geteuid() == 0 {
		dev := filepath.Join(b.root, "zero")
		if err := unix.Mknod(dev, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err == nil {
			_, err = b.read(dev)
			wantCode(t, "device", err, sandboxmcp.CodeHostPathDenied)
		}
	}
}

// TestWalls: a command is behind every wall that its result lists, and the server is behind none.
func TestWalls(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	b := open(t, func(c *host.Config) {
		c.Allowed = []string{"touch", "cat", "cp"}
	})
	a := b.file("a.txt", "content\n")
	out, err := b.exec("cat " + a)
	if err != nil {
		t.Fatal(err)
	}
	for w := range strings.SplitSeq("no_new_privs,rlimits,closed descriptors,seccomp,executes no further program,starts no process,makes no socket,changes no file attribute", ",") {
		if !slices.Contains(out.Walls, w) {
			t.Errorf("walls: got %q, want %q in them", out.Walls, w)
		}
	}
	if !slices.ContainsFunc(out.Walls, func(w string) bool { return strings.HasPrefix(w, "landlock") }) {
		t.Errorf("walls: got %q, want landlock in them", out.Walls)
	}
	for _, line := range []string{"touch " + b.root + "/made", "cp " + a + " " + b.root + "/made", "touch /tmp/sandboxmcp-host-test"} {
		if out, err := b.exec(line); err != nil || out.Success {
			t.Errorf("%s: got %+v, %v, want it to fail", line, out, err)
		}
	}
	if _, err := os.Stat(b.root + "/made"); err == nil {
		t.Error("a command made a file")
	}
	// The server itself can still write, and gains new privileges by execve.
	b.file("after.txt", "x")
	for _, who := range []string{"self", "thread-self"} {
		status, err := os.ReadFile("/proc/" + who + "/status")
		if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t0") {
			t.Skipf("%s: this test runs with no_new_privs already: %v", who, err)
		}
	}
}

// TestSecretsAreWalledOff: a program cannot read the state directory by a path that it was not
// given, and executes no other program.
func TestSecretsAreWalledOff(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	b := open(t, func(c *host.Config) {
		script := "#!/bin/sh\nread line < '" + c.Own[0] + "/sandboxmcp.db' && echo READ\n/bin/ls / && echo RAN\nread x < /etc/hostname; echo DONE\n"
		if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		c.Allowed = []string{tool}
	})
	out, err := b.exec(tool)
	if err != nil || out.Stdout != "DONE\n" {
		t.Errorf("got %+v, %v, want neither the secret read nor another program executed", out, err)
	}
}

// TestSecretsAreWalledOffInTheirSpelling: the list of names is in lower case, and some programs have others.
func TestSecretsAreWalledOffInTheirSpelling(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{"grep"} })
	t.Setenv("HOME", b.root)
	b.file(".config/BraveSoftware/Cookies", "CANARY\n")
	b.file(".config/Code/settings", "OPEN\n")
	b.file(".mozilla/x", "CANARY\n")
	b.file("snap/firefox/common/.mozilla/x", "CANARY\n") // what packages of applications keep for them
	b.file(".var/app/org.mozilla.firefox/.mozilla/x", "CANARY\n")
	out, err := b.exec("grep -rhE 'CANARY|OPEN' " + b.root)
	if err != nil || out.Stdout != "OPEN\n" {
		t.Errorf("got %+v, %v, want only what is open", out, err)
	}
}

// TestSecretsThatAreMadeLaterAreWalledOff: the places of keys are looked for when a command begins,
// not when the server does.
func TestSecretsThatAreMadeLaterAreWalledOff(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	tool, key := filepath.Join(t.TempDir(), "tool"), filepath.Join(home, ".aws", "credentials")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\nread line < '"+key+"' && echo READ\necho DONE\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{tool} })
	if err := os.Mkdir(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := b.exec(tool); err != nil || out.Stdout != "DONE\n" {
		t.Errorf("got %+v, %v, want the key not read", out, err)
	}
}

// TestSandboxesAreWalledOff: the files of a sandbox of tier L1 are in a directory of the host, and belong to a caller who
// need not be the one of the command.
func TestSandboxesAreWalledOff(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	temp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	tool, file := filepath.Join(t.TempDir(), "tool"), filepath.Join(temp, "sandboxmcp-l1-1", "data", "private.txt")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\nread line < '"+file+"' && echo READ\necho DONE\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed, c.Roots = []string{tool, "cat", "ls"}, []string{temp} })
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("of another caller\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := b.exec(tool); err != nil || out.Stdout != "DONE\n" {
		t.Errorf("got %+v, %v, want the file not read", out, err)
	}
	b.wantRefused("cat "+file, sandboxmcp.CodeHostPathDenied)
	b.wantRefused("ls "+filepath.Dir(file), sandboxmcp.CodeHostPathDenied)
	_, err = b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: file}, noMasks{})
	wantCode(t, "read", err, sandboxmcp.CodeHostPathDenied)
}

// TestLaterSandboxesAreWalledOff: a command does not read the files of a sandbox that is opened while it is executed, also if
// there was none before.
func TestLaterSandboxesAreWalledOff(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	temp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	dir := t.TempDir()
	tool, begun, file := filepath.Join(dir, "tool"), filepath.Join(dir, "begun"), filepath.Join(temp, "sandboxmcp-l1-1", "private.txt")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\nread line < '"+begun+"'\nread line < '"+file+"' && echo READ\necho DONE\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{tool} })
	made := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(begun, os.O_WRONLY, 0) // waits for the command
		if err == nil {
			err = errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("of another caller\n"), 0o600), f.Close())
		}
		made <- err
	}()
	if out, err := b.exec(tool); err != nil || out.Stdout != "DONE\n" {
		t.Errorf("got %+v, %v, want the file not read", out, err)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// TestCommandsYieldMemory: a command that takes memory without end, such as tail of /dev/zero, is
// bounded, and the kernel ends it before the server.
func TestCommandsYieldMemory(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "tool")
	script := "#!/bin/sh\nread score < /proc/self/oom_score_adj; echo $score; ulimit -d\n"
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{tool} })
	b.wantOutput(tool, "1000\n1048576\n") // KiB
}

// TestAnApprovedCommandWritesWhereItsWordsSay: and nowhere else.
func TestAnApprovedCommandWritesWhereItsWordsSay(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	b := open(t)
	b.file("in/a.txt", "x")
	b.file("other/b.txt", "old")
	for _, p := range []string{"cp " + b.root + "/other/b.txt " + b.root + "/in/a.txt", "touch " + b.root + "/in/c.txt", "cp " + b.root + "/in/a.txt /tmp/sandboxmcp-host-test"} {
		if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: p}}); err != nil {
			t.Fatal(err)
		}
		out, err := b.exec(p)
		if want := !strings.Contains(p, "/tmp/sandboxmcp-host-test"); err != nil || out.Success != want {
			t.Errorf("%s: got %+v, %v, want success %v", p, out, err, want)
		}
	}
	if content, err := os.ReadFile(b.root + "/in/a.txt"); string(content) != "old" || err != nil {
		t.Errorf("got %q, %v, want the copy", content, err)
	}
}

// TestAnApprovedCommandWritesThroughNoLink: what a person has allowed writes where its words say, not where a link leads that a program
// in a sandbox has moved there.
func TestAnApprovedCommandWritesThroughNoLink(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	b := open(t)
	b.file("new.txt", "new")
	kept := []string{b.file(".bashrc", "old"), b.file("other/a.txt", "old")}
	for link, target := range map[string]string{"file": ".bashrc", "dir": "other"} {
		if err := os.Symlink(target, filepath.Join(b.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{"file", "dir/a.txt", "dir/new.txt"} {
		line := "cp " + b.root + "/new.txt " + b.root + "/" + to
		if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: line}}); err != nil {
			t.Fatal(err)
		}
		if out, err := b.exec(line); err != nil || out.Success {
			t.Errorf("%s: got %+v, %v, want it refused by the kernel", line, out, err)
		}
	}
	for _, path := range kept {
		if content, err := os.ReadFile(path); string(content) != "old" || err != nil {
			t.Errorf("%s: got %q, %v, want it unchanged", path, content, err)
		}
	}
}

// TestWhatAnApprovedCommandNamesOpensNoClosedPlace: if a person has allowed a command that names a directory, or a new file in
// it, the state directory and the places of keys below that directory stay closed.
func TestWhatAnApprovedCommandNamesOpensNoClosedPlace(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	b := open(t, func(c *host.Config) { c.Roots, c.Own = []string{home}, []string{filepath.Join(home, "share", "state")} })
	b.root = home
	b.file(".ssh/id_rsa", "word of the key\n")
	b.file("share/state/signing.key", "word of the state\n")
	b.file("share/other/a.txt", "word of a file\n")
	b.file("from/state/signing.key", "other\n")
	b.file("from/b.txt", "b\n")
	run := func(line string) sandboxmcp.HostOutput {
		t.Helper()
		if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: line}}); err != nil {
			t.Fatal(err)
		}
		out, err := b.exec(line)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, line := range []string{"grep -r word " + home, "grep -r word " + home + " " + home + "/new"} {
		if out := run(line); !strings.Contains(out.Stdout, "word of a file") || strings.Contains(out.Stdout, "word of the") {
			t.Errorf("%s: got %q, want the file read, and neither the key nor the state directory", line, out.Stdout)
		}
	}
	run("cp -rt " + home + "/share " + home + "/from/state")
	if got, err := os.ReadFile(filepath.Join(home, "share/state/signing.key")); err != nil || string(got) != "word of the state\n" {
		t.Errorf("the state directory: got %q, %v, want it unchanged", got, err)
	}
	if out := run("cp " + home + "/from/b.txt " + home + "/share/other/a.txt"); !out.Success {
		t.Errorf("a file beside closed places: got %+v, want it written", out)
	}
}

// TestNoProcessIsLeft: the children of a command end with it.
func TestNoProcessIsLeft(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\n(while :; do read x < /dev/zero; done) &\necho $!\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{tool} })
	out, err := b.exec(tool)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.Stdout))
	if err != nil {
		t.Fatalf("got %+v, want a process id", out)
	}
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the kernel ends it after its SIGKILL
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("process %d is left: %s", pid, stat)
		}
	}
}

// TestProgramsExecuteNothing: a program that may execute its own file alone cannot execute another one by its loader either.
func TestProgramsExecuteNothing(t *testing.T) {
	env, err := os.ReadFile("/usr/bin/env")
	f, failed := elf.Open("/usr/bin/env")
	if err != nil || failed != nil {
		t.Skipf("env is no program of this machine: %v, %v", err, failed)
	}
	defer func() { _ = f.Close() }()
	loader := ""
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, _ := io.ReadAll(p.Open())
			loader = strings.TrimRight(string(text), "\x00")
		}
	}
	if loader == "" {
		t.Skip("env has no loader")
	}
	tool := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(tool, env, 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{tool} })
	for _, line := range []string{tool + " " + tool + " A=RAN", tool + " " + loader + " " + tool + " A=RAN"} {
		out, err := b.exec(line)
		if err != nil || out.Success || strings.Contains(out.Stdout, "RAN") || !slices.Contains(out.Walls, "executes no further program") {
			t.Errorf("%s: got %+v, %v, want that it executes nothing, and the wall for that", line, out, err)
		}
	}
}

// TestScriptsExecuteNothing: the loader of a script's interpreter executes every program that it is given.
func TestScriptsExecuteNothing(t *testing.T) {
	f, err := elf.Open("/usr/bin/env")
	if err != nil {
		t.Skipf("env is no program of this machine: %v", err)
	}
	_ = f.Close()
	dir := t.TempDir()
	names := map[string]string{"plain": "#!/bin/sh", "flag": "#!/bin/sh -u", "viaenv": "#!/usr/bin/env sh", "chain": "#!" + dir + "/plainer"}
	c := []string{}
	for name, first := range names {
		text := first + "\n/usr/bin/env A=RAN\nfor l in /lib*/ld-*.so*; do \"$l\" /usr/bin/env A=RAN; done\necho \"$0 $*\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		c = append(c, filepath.Join(dir, name))
	}
	if err := os.WriteFile(filepath.Join(dir, "plainer"), []byte("#!/bin/sh\n. \"$1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(to *host.Config) { to.Allowed = c })
	for _, tool := range c {
		out, err := b.exec(tool + " a b")
		if err != nil || strings.Contains(out.Stdout, "RAN") || !slices.Contains(out.Walls, "executes no further program") {
			t.Errorf("%s: got %+v, %v, want that it executes nothing, and the wall for that", tool, out, err)
		}
		if want := tool + " a b\n"; !strings.HasSuffix(out.Stdout, want) && filepath.Base(tool) != "chain" {
			t.Errorf("%s: got %q, want the script with its words", tool, out.Stdout)
		}
	}
}

// TestACommandNeedsNoOtherGoroutineToStart: while a program is started, Go keeps the thread's processor and lets no garbage
// collection begin, so a program that had to wait for another goroutine could wait for ever.
func TestACommandNeedsNoOtherGoroutineToStart(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Allowed = []string{"uname"} })
	start := func(what string) {
		t.Helper()
		if out, err := b.exec("uname"); err != nil || !out.Success {
			t.Fatalf("%s: got %+v, %v, want success", what, out, err)
		}
	}
	t.Run("one processor", func(t *testing.T) {
		before := runtime.GOMAXPROCS(1)
		defer runtime.GOMAXPROCS(before)
		start("one processor")
	})
	t.Run("garbage is collected", func(t *testing.T) {
		var over atomic.Bool
		collected := make(chan struct{})
		go func() {
			defer close(collected)
			for !over.Load() {
				runtime.GC()
			}
		}()
		defer func() { over.Store(true); <-collected }()
		for range 50 {
			start("garbage is collected")
		}
	})
}

// TestGitExecutesNothing: a repository that somebody else has made cannot make git execute its files.
func TestGitExecutesNothing(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	b := open(t)
	b.file(".gitattributes", "*.bin diff=x\n")
	b.file("s/d.bin", "one\n")
	for _, line := range []string{"init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm x", "config diff.x.command s/show", "config diff.x.textconv s/show", "config diff.external s/show"} {
		git := exec.CommandContext(t.Context(), "git", strings.Fields(line)...)
		git.Dir, git.Env = b.root, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", line, err, out)
		}
	}
	b.file("s/d.bin", "two\n")
	b.file("s/show", "#!/bin/sh\necho RAN\n")
	if err := os.Chmod(filepath.Join(b.root, "s/show"), 0o755); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{"git diff": "+two", "git log -p": "+one"} {
		out, err := b.exec(line)
		if err != nil || !out.Success || !strings.Contains(out.Stdout, want) || strings.Contains(out.Stdout, "RAN") {
			t.Errorf("%s: got %+v, %v, want the text of the change", line, out, err)
		}
	}
}

// TestGitReadsNothingOutsideOfItsRepository: the index of a repository can name any file as one of its own, its configuration any file
// of attributes, and its other files any place as a part of it.
func TestGitReadsNothingOutsideOfItsRepository(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	testkit.Need(t, "Landlock", haveLandlock(), "a kernel with Landlock")
	b := open(t)
	other := b.file("other/.env", "export CA!NARY\n")
	b.file("other/empty", "")
	b.git("other", "init", "-q", "--bare", ".")
	b.git("other", "hash-object", "-w", "empty")
	b.file("repo/a", "x\n")
	b.file("repo/."+strings.Repeat("x", len(other)-1), "")
	b.file("repo/."+strings.Repeat("x", len("../other/.env")-1), "")
	b.git("repo", "init", "-q")
	b.git("repo", "add", ".")
	b.git("repo", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
	b.git("repo", "config", "core.attributesFile", other)
	b.git("repo", "config", "mailmap.file", other)
	b.file("inc", "[core]\nabbrev = CA!NARY\n")
	b.file("included/a", "x\n")
	b.git("included", "init", "-q")
	b.git("included", "config", "include.path", filepath.Join(b.root, "inc"))
	forged := b.forge("repo/.git/index", other, "../other/.env")
	b.file("repo/.git/objects/info/alternates", filepath.Dir(other)+"\n../../../other\n")
	for _, line := range []string{"git diff", "git diff --cached", "git status", "git log -p", "git diff HEAD"} {
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: filepath.Join(b.root, "repo")}, noMasks{})
		if err != nil || strings.Contains(out.Stdout+out.Stderr, "CA!NARY") {
			t.Errorf("%s: got %q, %q, %v, want nothing of a file outside of the repository", line, out.Stdout, out.Stderr, err)
		}
	}
	out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "git branch -v", Dir: filepath.Join(b.root, "included")}, noMasks{})
	if err != nil || strings.Contains(out.Stdout+out.Stderr, "CA!NARY") {
		t.Errorf("git branch: got %q, %q, %v, want nothing of a file outside of the repository", out.Stdout, out.Stderr, err)
	}
	b.file("repo/a", "CHANGED\n")
	out, err = b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "git diff a", Dir: filepath.Join(b.root, "repo")}, noMasks{})
	if err != nil || !strings.Contains(out.Stdout, "+CHANGED") || !slices.ContainsFunc(out.Walls, func(w string) bool { return strings.HasPrefix(w, "landlock") }) {
		t.Errorf("got %+v, %v, want the change of its own file, and the wall that holds it", out, err)
	}
	b.file("shares/.git", "gitdir: own\n")
	b.file("shares/own/commondir", filepath.Dir(other)+"\n")
	b.file("shares/own/HEAD", "ref: refs/heads/x\n")
	b.file("shares/own/index", forged)
	out, err = b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "git diff", Dir: filepath.Join(b.root, "shares")}, noMasks{})
	if err != nil || strings.Contains(out.Stdout+out.Stderr, "CA!NARY") {
		t.Errorf("got %q, %q, %v, want nothing of a repository of which this is no worktree", out.Stdout, out.Stderr, err)
	}
}
