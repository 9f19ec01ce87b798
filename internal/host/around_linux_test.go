package host_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// around returns a host with a repository in its root, of which the directory packages is the workspace.
func around(t *testing.T) *bed {
	t.Helper()
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	b := open(t, func(c *host.Config) {
		c.Allowed, c.Changeable = append(c.Allowed, "npm list"), filepath.Join(c.Roots[0], "packages")
	})
	for _, dir := range []string{"", "..", "../.."} { // another user has to pass
		if err := os.Chmod(filepath.Join(b.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.file("package.json", `{"name":"mine","version":"1.0.0","workspaces":["packages/*"]}`)
	b.file("packages/p/package.json", `{"name":"p","version":"1.0.0"}`)
	b.file("packages/f", "one\n")
	b.git("", "init", "-q")
	b.git("", "add", ".")
	b.git("", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
	if err := errors.Join(os.Mkdir(b.root+"/node_modules", 0o755), os.Symlink("../packages/p", b.root+"/node_modules/p")); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGitFollowsNoLinkThatTakesThePlaceOfAFile: a program in a sandbox can exchange files in a workspace while git compares them, also for a
// link that was there and leads to another part of the repository.
func TestGitFollowsNoLinkThatTakesThePlaceOfAFile(t *testing.T) {
	b := around(t)
	b.file(".env", "CANARY=1\n")
	file, link := b.file("packages/f", "two45678\n"), b.root+"/packages/link"
	if err := os.Symlink("../.env", link); err != nil {
		t.Fatal(err)
	}
	out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "git diff", Dir: b.root}, noMasks{})
	if err != nil || !strings.Contains(out.Stdout, "+two45678") {
		t.Errorf("got %+v, %v, want the change", out, err)
	}
	b.turn(func() { _ = unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) })
	b.neverShows("git diff", "")
}

// TestFilesOfRootInAWorkspaceAreNotShown: a program in a sandbox can give a file of root there the name of one that a command reads, also
// if the command's project or repository contains the workspace, or has a link into it.
func TestFilesOfRootInAWorkspaceAreNotShown(t *testing.T) {
	testkit.Need(t, "root", os.Geteuid() == 0, "root")
	b := around(t)
	for _, name := range []string{"packages", "packages/p", "packages/p/package.json", "packages/f"} {
		if err := os.Chown(filepath.Join(b.root, name), 65533, 65532); err != nil {
			t.Fatal(err)
		}
	}
	hidden := b.file("packages/.env", `{"name":"p","version":"1.0.0","private":"CANARY"}`)
	b.file("elsewhere/package.json", `{"name":"other","version":"1.0.0"}`)
	other := filepath.Join(b.root, "elsewhere/node_modules/p")
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Mkdir(filepath.Dir(other), 0o755), os.Symlink("../../packages/p", other)); err != nil {
		t.Fatal(err)
	}
	_, failed := exec.LookPath("/usr/bin/npm")
	for _, c := range []struct{ line, dir, name string }{
		{"git diff", "", "packages/f"},
		{"git diff", "packages", "packages/f"},
		{"npm list --json --long", "", "packages/p/package.json"},
		{"npm list --json --long", "elsewhere", "packages/p/package.json"},
	} {
		if c.line != "git diff" && failed != nil {
			continue
		}
		name := filepath.Join(b.root, c.name)
		exchange := func() error { return unix.Renameat2(unix.AT_FDCWD, hidden, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE) }
		if err := exchange(); err != nil {
			t.Fatal(err)
		}
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: c.line, Dir: filepath.Join(b.root, c.dir)}, noMasks{})
		if err != nil || strings.Contains(out.Stdout+out.Stderr, "CANARY") {
			t.Errorf("%s in %q: got %+v, %v, want nothing of a file of root", c.line, c.dir, out, err)
		}
		if err := exchange(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "npm list", Dir: b.root}, noMasks{}); failed == nil && (err != nil || !strings.Contains(out.Stdout, "p@1.0.0")) {
		t.Errorf("got %+v, %v, want the package", out, err)
	}
}
