package host_test

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// workspace returns a host with repositories and projects in, around and beside outer/ws, and one with the same root of which outer/ws is the
// writable workspace.
func workspace(t *testing.T) (without, with *bed) {
	t.Helper()
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	var settings host.Config
	b := open(t, func(c *host.Config) {
		c.Allowed = append([]string{"git diff --stat"}, usualRules...)
		settings = *c
	})
	const about = `{"name":"mine","version":"1.0.0"}`
	for name, text := range map[string]string{
		"outer/package.json": `{"name":"outer","version":"1.0.0","workspaces":["ws/*","other/*"]}`, "outer/other/in/package.json": about, "outer/deep/f": "f",
		"outer/ws/f": "f", "outer/ws/package.json": about, "outer/ws/repo/sub/a": "a", "plain/f": "f", "plain/5": "5", "plain/package.json": about, "linking/f": "f", "linking/package.json": about,
		"parts/f": "f", "records/f": "f", "lent/f": "f",
	} {
		b.file(name, text)
	}
	for _, dir := range []string{"outer/ws/repo", "outer", "plain", "parts", "records", "lent"} {
		for _, line := range []string{"init -q", "add .", "-c user.name=x -c user.email=x commit -qm one"} {
			b.git(dir, strings.Fields(line)...)
		}
	}
	for _, line := range []string{"worktree add -q ../../../worktree", "clone -q . ../../../whole", "clone -q --shared . ../../../borrows", "clone -q --shared ../../../borrows ../../../again"} {
		b.git("outer/ws/repo", strings.Fields(line)...)
	}
	b.git("plain", "worktree", "add", "-q", "../tree")
	b.file("plain/.git/worktrees/tree/commondir", filepath.Join(b.root, "outer/ws/out/.git")+"\n")
	b.file("through/.git", "gitdir: ../link.git\n")
	b.file("via/.git", "gitdir: ../outer/ws/out/.git\n")
	for link, target := range map[string]string{
		"link.git": "outer/ws/repo/.git", "parts/.git/objects": "../../outer/ws/objects", "outer/ws/objects": "../../parts/kept", "records/.git/info": "../../outer/ws/info", "lent/.git/objects/info/alternates": "../../../../outer/ws/alternates",
		"file": "outer/ws/f", "dir": "outer/ws", "outer/ws/out": "../../plain", "linking/node_modules/p": "../../outer/ws", "linking/node_modules/q": "../../outer/ws/out",
		"names2/package.json": "../outer/ws/package.json", "names3/node_modules": "../outer/ws",
	} {
		link = filepath.Join(b.root, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.RemoveAll(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
	}
	settings.Changeable = filepath.Join(b.root, "outer/ws")
	other := *b
	if other.Host, err = host.New(settings); err != nil {
		t.Fatal(err)
	}
	return b, &other
}

// refused fails the test unless a host refuses a command, and without a writable workspace another one does not.
func refused(t *testing.T, without, with *bed, line, dir string) {
	t.Helper()
	command := sandboxmcp.HostCommand{Command: strings.ReplaceAll(line, "ROOT", with.root), Dir: filepath.Join(with.root, dir)}
	_, err := with.Exec(t.Context(), caller, command, noMasks{})
	if failed := sandboxmcp.AsError(err); failed == nil || failed.Code != sandboxmcp.CodeHostPathDenied || !strings.Contains(failed.Message, "workspace_path") || !strings.Contains(failed.Hint, "execute_code") && !strings.Contains(failed.Hint, "request_host_access") {
		t.Errorf("%s in %s: got %v, want that it is refused because of the workspace", line, dir, err)
	}
	if _, err = without.Exec(t.Context(), caller, command, noMasks{}); sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostPathDenied {
		t.Errorf("%s in %s: got %v, want it executed without a writable workspace", line, dir, err)
	}
}

// TestCommandsOfTheSettingsKeepAwayFromTheWorkspace: a program in a sandbox can exchange what a command reads in a writable workspace at any
// moment. So a command of the default rules has nothing to do with it, also not through links, or because it contains it.
func TestCommandsOfTheSettingsKeepAwayFromTheWorkspace(t *testing.T) {
	without, with := workspace(t)
	for dir, lines := range map[string]string{
		"outer/ws/repo": "git status,git diff,git log -p,git branch,ls,ls -l,cat sub/a,npm list", "outer/ws/repo/sub": "git status,cat a,tail -n1 a", "outer/ws": "npm list,npm list -g,cat f,ls .",
		"outer": "git status,git diff,git log,git branch,npm list,npm list -g", "outer/deep": "git diff,npm list", "outer/other": "npm list", "outer/other/in": "npm list",
		"worktree": "git status,git diff", "worktree/sub": "git diff", "through": "git status", "via": "git status", "tree": "git status", "borrows": "git log,git diff", "again": "git log", "parts": "git status", "records": "git diff", "lent": "git log",
		"names2": "npm list", "names3": "npm list",
		"plain": "cat ROOT/outer/ws/f,head -n 1 ROOT/file,tail -n1 ../file,cat ../dir/f,cat ../dir/out/f,cat ../dir/none,ls ../dir,ls -l ROOT/outer/ws/none,df ROOT/outer/ws,df ../dir,cat f ../file",
	} {
		for line := range strings.SplitSeq(lines, ",") {
			refused(t, without, with, line, dir)
		}
	}
	for dir, lines := range map[string]string{
		"outer/ws": "df,date,uname,cat ROOT/plain/f,head -n 5 ROOT/plain/f,ls ROOT/plain", "outer": "ls,ls -l,cat deep/f", "": "ls,cat plain/f,npm list -g", "plain": "git status,git diff,git log -p,git branch,cat f,cat 5,npm list",
		"whole": "git status,git log", "linking": "npm list",
	} {
		for line := range strings.SplitSeq(lines, ",") {
			if _, err := exec.LookPath(strings.Fields(line)[0]); err != nil {
				continue
			}
			out, err := with.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: strings.ReplaceAll(line, "ROOT", with.root), Dir: filepath.Join(with.root, dir)}, noMasks{})
			if err != nil || !out.Success && !strings.HasPrefix(line, "npm") {
				t.Errorf("%s in %s: got %+v, %v, want it executed", line, dir, out, err)
			}
			if strings.Contains(out.Stdout, "npm:mine") {
				t.Errorf("%s in %s: got %q, want no package in the workspace", line, dir, out.Stdout)
			}
		}
	}
}

// TestOtherRulesMayUseTheWorkspace: a person has allowed a command, or the settings have a rule of their own.
func TestOtherRulesMayUseTheWorkspace(t *testing.T) {
	_, with := workspace(t)
	with.file("outer/ws/repo/sub/a", "changed\n")
	named := "git -C " + filepath.Join(with.root, "outer") + " status --short"
	with.allow(named)
	for line, want := range map[string]string{"git diff --stat": "sub/a", named: "ws/objects", "tac sub/a": "changed"} {
		if strings.HasPrefix(line, "tac") {
			with.allow(line)
		}
		out, err := with.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: filepath.Join(with.root, "outer/ws/repo")}, noMasks{})
		if err != nil || !out.Success || !strings.Contains(out.Stdout, want) {
			t.Errorf("%s: got %+v, %v, want it executed", line, out, err)
		}
	}
}

// TestCommandsOfTheSettingsKeepAwayFromAMountOfTheWorkspace: a mount may show the workspace, or a part of it, at another path.
func TestCommandsOfTheSettingsKeepAwayFromAMountOfTheWorkspace(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	without, with := workspace(t)
	for _, dir := range []string{"shown", "plain/part", "linked/node_modules/p", "outer/ws/from"} {
		if err := os.MkdirAll(filepath.Join(with.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, filepath.Join(with.root, "outer/ws"), filepath.Join(with.root, "shown"))
	mount(t, filepath.Join(with.root, "outer/ws/repo"), filepath.Join(with.root, "plain/part"))
	mount(t, filepath.Join(with.root, "outer/ws"), filepath.Join(with.root, "linked/node_modules/p"))
	mount(t, filepath.Join(with.root, "whole"), filepath.Join(with.root, "outer/ws/from"))
	for dir, lines := range map[string]string{
		"shown": "cat f,ls,npm list", "shown/repo": "git status", "plain": "cat ../shown/f,ls part,git status,npm list", "plain/part": "git log", "linked": "npm list", "whole": "git status", "outer/ws/from": "git status",
	} {
		for line := range strings.SplitSeq(lines, ",") {
			refused(t, without, with, line, dir)
		}
	}
}

// TestGitReadsNothingOfItsUserInTheWorkspace: git prints words of its user's file of attributes, and the workspace may contain it.
func TestGitReadsNothingOfItsUserInTheWorkspace(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	_, with := workspace(t)
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	with.file("outer/ws/home/.config/git/attributes", "f url: HIDDEN://words\n")
	with.file("outer/ws/home/.config/git/ignore", "none\n")
	mount(t, filepath.Join(with.root, "outer/ws/home"), u.HomeDir)
	with.file("plain/f", "changed\n")
	with.file("plain/none", "")
	for line, want := range map[string]string{"git diff": "+changed", "git status": "none"} {
		out, err := with.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: filepath.Join(with.root, "plain")}, noMasks{})
		if err != nil || !out.Success || !strings.Contains(out.Stdout, want) || strings.Contains(out.Stdout+out.Stderr, "HIDDEN") {
			t.Errorf("%s: got %+v, %v, want the change, and nothing of the file", line, out, err)
		}
	}
}

// TestNpmReadsNoPackageInTheWorkspace: a program in a sandbox can give any file there the name package.json.
func TestNpmReadsNoPackageInTheWorkspace(t *testing.T) {
	_, err := exec.LookPath("/usr/bin/npm")
	testkit.Need(t, "npm", err == nil, "npm")
	_, with := workspace(t)
	hidden := with.file("outer/ws/.env", `{"name":"p","version":"1.0.0","private":"CANARY"}`)
	if err := unix.Renameat2(unix.AT_FDCWD, hidden, unix.AT_FDCWD, filepath.Join(with.root, "outer/ws/package.json"), unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	out, err := with.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "npm list --json --long", Dir: filepath.Join(with.root, "linking")}, noMasks{})
	if err != nil || !strings.Contains(out.Stdout, `"mine"`) || strings.Contains(out.Stdout+out.Stderr, "CANARY") {
		t.Errorf("got %+v, %v, want the project, and nothing of the workspace", out, err)
	}
}

// TestRepositoryThatTakesLongToFollow: the records of a repository may be thousands of links through thousands of directories. With a writable
// workspace the server follows them, and refuses a command of git for which these are too many. Without one it follows none.
func TestRepositoryThatTakesLongToFollow(t *testing.T) {
	without, with := workspace(t)
	for i, next := range []string{"l1", "f"} {
		if err := os.Symlink(strings.Repeat(".git/../", 450)+next, filepath.Join(with.root, "plain/l"+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 9000 {
		if err := os.Symlink("../l0", filepath.Join(with.root, "plain/.git/x"+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	command := sandboxmcp.HostCommand{Command: "git log", Dir: filepath.Join(with.root, "plain"), Timeout: time.Minute}
	_, err := with.Exec(t.Context(), caller, command, noMasks{})
	wantCode(t, "records that take too much to look at", err, sandboxmcp.CodeHostPathDenied)
	if out, err := without.Exec(t.Context(), caller, command, noMasks{}); err != nil || !out.Success {
		t.Errorf("without a writable workspace: got %+v, %v, want it executed", out, err)
	}
}
