package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	} {
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: c.line, Dir: c.dir}, noMasks{})
		wantCode(t, c.line+" in "+c.dir, err, c.want)
		if strings.Contains(out.Stdout, "CANARY") {
			t.Errorf("%s in %s: got %q, want no file that git does not track", c.line, c.dir, out.Stdout)
		}
	}
}

// TestAPersonIsWarnedOfLookAlikes: a word of several scripts may name another file than it seems to.
func TestAPersonIsWarnedOfLookAlikes(t *testing.T) {
	b := open(t)
	for pattern, want := range map[string]bool{"wc -c /srv/b\u0443ild": true, "wc -c /srv/build": false, "wc -c /srv/\u0441\u0431\u043e\u0440\u043a\u0430-1": false, "wc -c /srv/Übersicht": false} {
		got, err := b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: pattern}, noMasks{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := b.Host.List(t.Context(), caller.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Pending {
			if p.ID == got.ApprovalID && (p.Warning != "") != want {
				t.Errorf("%q: got the warning %q, want one: %t", pattern, p.Warning, want)
			}
		}
	}
}
