package host_test

import (
	"crypto/sha1"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestGitComparesOnlyWhatIsInARepository: elsewhere git diff would print every file of a directory, also those that no command may
// name.
func TestGitComparesOnlyWhatIsInARepository(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	b := open(t)
	for _, dir := range []string{"repo", "other", "bare"} {
		git := exec.CommandContext(t.Context(), "git", "init", "-q", filepath.Join(b.root, dir))
		git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git init: %v: %s", err, out)
		}
	}
	repo := filepath.Join(b.root, "repo")
	bare := filepath.Join(repo, "bare") // names of a bare repository, which git uses none of
	if err := os.Rename(filepath.Join(b.root, "bare/.git"), bare); err != nil {
		t.Fatal(err)
	}
	b.file("repo/.env", "CANARY\n")
	b.file("repo/none/a", "x\n")
	b.file("free/.env", "CANARY\n")
	b.file("free/none/a", "x\n")
	for _, name := range []string{"broken/.git/HEAD", "empty/.git/objects/x"} { // git takes neither for a repository
		b.file(name, "x\n")
		dir, _, _ := strings.Cut(name, "/")
		b.file(dir+"/.env", "CANARY\n")
		b.file(dir+"/none/a", "x\n")
	}
	for _, c := range []struct {
		dir, line string
		want      sandboxmcp.Code
	}{
		{repo, "git diff", ""},
		{repo, "git diff -- none .", ""},
		{repo, "git diff none .", ""},
		{repo, "git diff " + repo + "/none " + repo, ""},
		{bare, "git diff " + repo + "/none " + repo, ""},
		{repo + "/.git", "git diff " + repo + "/none " + repo, ""},
		{repo + "/none", "git diff . ..", ""},
		{repo, "git diff ../free/none ../free", sandboxmcp.CodeHostPathDenied},
		{repo, "git diff -- ../free/none ../free", sandboxmcp.CodeHostPathDenied},
		{filepath.Join(b.root, "other"), "git diff " + repo + "/none " + repo, sandboxmcp.CodeHostPathDenied},
		{"/", "git diff " + repo + "/none " + repo, sandboxmcp.CodeHostPathDenied},
		{filepath.Join(b.root, "free"), "git diff none .", sandboxmcp.CodeHostPathDenied},
		{filepath.Join(b.root, "empty"), "git diff none .", sandboxmcp.CodeHostPathDenied},
		{filepath.Join(b.root, "broken"), "git diff none .", ""}, // git itself fails
		{filepath.Join(b.root, "broken"), "git diff -- none .", ""},
	} {
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: c.line, Dir: c.dir}, noMasks{})
		wantCode(t, c.line+" in "+c.dir, err, c.want)
		if strings.Contains(out.Stdout, "CANARY") {
			t.Errorf("%s in %s: got %q, want no file that git does not track", c.line, c.dir, out.Stdout)
		}
	}
}

// TestGitComparesInEveryRepository: .git is a file in linked worktrees, also in those of a bare repository, and in submodules.
func TestGitComparesInEveryRepository(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	b := open(t)
	b.file("repo/sub/a", "x\n")
	repo := filepath.Join(b.root, "repo")
	for _, line := range []string{
		"init -q", "add .", "commit -qm one", "worktree add -q ../linked", "clone -q --bare . ../bare", "--git-dir=../bare worktree add -q ../fromBare", "clone -q . ../all",
		"-C ../all submodule --quiet add " + repo + " module", "clone -q . ../outer", "clone -q --shared . ../borrows", "clone -q --shared ../borrows ../again",
		"clone -q . ../parts", "clone -q --bare . ../store",
	} {
		git := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x", "-c", "protocol.file.allow=always"}, strings.Fields(line)...)...)
		git.Dir, git.Env = repo, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", line, err, out)
		}
	}
	b.file("outer/sub/.git/none", "")                      // git passes over it
	objects := filepath.Join(b.root, "parts/.git/objects") // as the tool repo makes them, which keeps objects elsewhere
	if err := errors.Join(os.RemoveAll(objects), os.Symlink(filepath.Join(b.root, "store/objects"), objects)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"repo", "linked", "fromBare", "all/module", "outer", "borrows", "again", "parts"} {
		b.file(dir+"/sub/a", "CHANGED\n")
		for _, line := range []string{"git diff", "git diff HEAD -- a", "git diff -- ../sub", "git diff --unified=0 HEAD -- :/", "git diff -U5", "git diff HEAD:sub/a a", "git log -p -n 1"} {
			want := "+CHANGED"
			if strings.HasPrefix(line, "git log") {
				want = "+x"
			}
			out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: filepath.Join(b.root, dir, "sub")}, noMasks{})
			if err != nil || !strings.Contains(out.Stdout, want) {
				t.Errorf("%s in %s: got %+v, %v, want the change", line, dir, out, err)
			}
		}
	}
}

// TestAPersonIsWarnedOfLookAlikes: a word of several scripts may name another file than it seems to, and words of scripts that are written from
// right to left may be shown in another order.
func TestAPersonIsWarnedOfLookAlikes(t *testing.T) {
	b := open(t)
	const scripts, order, signs = "another script", "another order", "look like others"
	for pattern, want := range map[string]string{
		"wc -c /srv/b\u0443ild": scripts, "bash /srv/b\u0443ild": scripts, "wc -c /srv/build": "", "wc -c /srv/\u0441\u0431\u043e\u0440\u043a\u0430-1": "", "wc -c /srv/Übersicht": "",
		"wc -c /srv/\u0430\u0440\u0440/run": scripts, "wc -c /srv/\u0445-\u0443": scripts,
		"wc -c /srv\u2215build": signs, "wc \u2212c a": signs, "wc -c /srv/confi\u0261": signs, "wc -c \U0001d68b": signs, "wc -c \uff42": signs, "wc -c /srv/cafe\u0301": signs, "wc -c 1\u09e6": signs,
		"wc -c /srv/b\u2c9fx": scripts, "wc -c /srv/\ua4d0\ua4f4": scripts, "wc -c /srv/\u03c1\u03c5": scripts, "wc -c /srv/\u03ba\u03b1\u03b9": "", "wc -c /srv/log\u8cc7\u6599\u3001\u30c7\u30fc\u30bf": "", "wc -c /srv/caf\u00e9-t\u1ebf": "", "wc -c /srv/\u0939\u093f\u0928\u094d\u0926\u0940": "",
		"wc -c /srv/\u0445\u04af\u0475": scripts, "wc -c /srv/\u03bf\u03c7": scripts, "wc -c /srv/\u0555\u054d\u054f": scripts, "wc -c /srv/\u144c\u14aa": scripts, "wc -c /srv/\u2d54": scripts, "wc -c /srv/\u101d": scripts,
		"cp \u05d0 \u05d1": order, "cp \u0627 1 2 \u0628": order, "cp \U0001e900 a": order,
	} {
		got, err := b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: pattern}, noMasks{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := b.Host.List(t.Context(), caller.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Pending {
			if p.ID == got.ApprovalID && (want == "" && p.Warning != "" || !strings.Contains(p.Warning, want)) {
				t.Errorf("%q: got the warning %q, want %q in one", pattern, p.Warning, want)
			}
		}
	}
}

// TestGitPrintsNoWordsOfNamedFiles: git prints invalid attributes of its attributes file, and names of its mailmap. Others may
// have written the configuration of a repository, which says which files these two are.
func TestGitPrintsNoWordsOfNamedFiles(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	b := open(t)
	b.file("repo/f", "1")
	named := b.file("repo/other", "url: HIDDEN://words\nHIDDEN <a@b>\n")
	b.git("repo", "init", "-q")
	b.git("repo", "add", ".")
	b.git("repo", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "f")
	b.git("repo", "config", "core.attributesFile", named)
	b.git("repo", "config", "mailmap.file", named)
	b.file("repo/f", "2")
	for _, line := range []string{"git status", "git diff", "git log"} {
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: filepath.Join(b.root, "repo")}, noMasks{})
		if err != nil || !out.Success || strings.Contains(out.Stdout+out.Stderr, "HIDDEN") {
			t.Errorf("%s: got %+v, %v, want nothing of the file", line, out, err)
		}
	}
}

// git executes git in a directory of the root.
func (b *bed) git(dir string, line ...string) {
	b.t.Helper()
	git := exec.CommandContext(b.t.Context(), "git", line...)
	git.Dir, git.Env = filepath.Join(b.root, dir), append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := git.CombinedOutput(); err != nil {
		b.t.Fatalf("git %s: %v: %s", line, err, out)
	}
}

// turn calls f again and again, until the caller calls end or the test ends.
func (b *bed) turn(f func()) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	end = sync.OnceFunc(func() {
		close(stop)
		<-done
	})
	b.t.Cleanup(end)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				f()
			}
		}
	}()
	return end
}

// forge replaces the name of a file in an index, which has only dots and letters x and is as long as the new one.
func (b *bed) forge(index string, names ...string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.root, index))
	if err != nil {
		b.t.Fatal(err)
	}
	forged := string(text)
	for _, name := range names {
		forged = strings.Replace(forged, "."+strings.Repeat("x", len(name)-1)+"\x00", name+"\x00", 1)
	}
	forged = forged[:len(forged)-sha1.Size]
	sum := sha1.Sum([]byte(forged))
	b.file(index, forged+string(sum[:]))
	return forged + string(sum[:])
}
