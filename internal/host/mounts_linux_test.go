package host_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestClosedPlacesAreClosedByAMountToo: a mount may show the state directory, or a part of it that is a mount itself, once more.
func TestClosedPlacesAreClosedByAMountToo(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	b := open(t)
	again, disk, inside := filepath.Join(b.root, "again"), filepath.Join(b.root, "disk"), filepath.Join(b.state, "inside")
	for _, dir := range []string{again, disk, inside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, b.state, again)
	if err := syscall.Mount("none", disk, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	b.file("disk/part/kept", "CANARY")
	mount(t, disk+"/part", inside)
	b.file("again/kept", "CANARY")
	for _, path := range []string{again + "/kept", disk + "/part/kept"} {
		_, err := b.exec("cat " + path)
		wantCode(t, path, err, sandboxmcp.CodeHostPathDenied)
	}
	if out, err := b.exec("ls -d " + b.root); err != nil || !strings.Contains(out.Stdout, b.root) {
		t.Errorf("beside it: got %+v, %v, want the directory", out, err)
	}
}

// mount shows a directory at another path, until the test ends.
func mount(t *testing.T, from, at string) {
	t.Helper()
	if err := syscall.Mount(from, at, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
}

// TestGitReadsWhatItsUserHasForIt: the list of ignored files may be a link to a file elsewhere, and a git that is installed in a
// directory of its own has libraries there.
func TestGitReadsWhatItsUserHasForIt(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	if !testkit.OwnMounts(t) {
		return
	}
	b := open(t)
	b.file("dots/ignore", "*.log\n")
	b.file("home/.config/git/none", "")
	b.file("repo/x.log", "x\n")
	git := exec.CommandContext(t.Context(), "git", "init", "-q", filepath.Join(b.root, "repo"))
	err = errors.Join(os.Symlink(filepath.Join(b.root, "dots/ignore"), filepath.Join(b.root, "home/.config/git/ignore")), git.Run())
	if err != nil {
		t.Fatal(err)
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Join(b.root, "home"), u.HomeDir)
	status := sandboxmcp.HostCommand{Command: "git status --short", Dir: filepath.Join(b.root, "repo")}
	if out, err := b.Exec(t.Context(), caller, status, noMasks{}); err != nil || !out.Success || out.Stdout != "" {
		t.Errorf("got %+v, %v, want that git passes over what the list names", out, err)
	}
	b.file("own/lib/text", "LIBRARY\n")
	b.tool("own/bin/git", "#!/bin/sh\nread line < "+b.root+"/own/lib/text\necho $line\n")
	if err := errors.Join(os.Mkdir(filepath.Join(b.root, "bin"), 0o755), os.Symlink(filepath.Join(b.root, "own/bin/git"), filepath.Join(b.root, "bin/git"))); err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Join(b.root, "bin"), "/usr/local/bin")
	other := open(t)
	if out, err := other.Exec(t.Context(), caller, status, noMasks{}); err != nil || out.Stdout != "LIBRARY\n" {
		t.Errorf("got %+v, %v, want what is in its own directory of libraries", out, err)
	}
}

// TestDevicesAreClosedByAMountToo: a directory with another system in it, as tools that build packages have one, shows the devices and
// the kernel's files once more.
func TestDevicesAreClosedByAMountToo(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	b := open(t, func(c *host.Config) { c.Allowed = append(c.Allowed, "head", "grep") })
	b.file("other/dev/none", "")
	b.file("proc/none", "")
	b.file("other/beside", "BESIDE\n")
	mount(t, "/dev", filepath.Join(b.root, "other/dev"))
	mount(t, "/proc", filepath.Join(b.root, "proc"))
	for _, name := range []string{"other/dev/urandom", "proc/version"} {
		out, err := b.exec("head -c 4 " + filepath.Join(b.root, name))
		wantCode(t, name, err, sandboxmcp.CodeHostPathDenied)
		if out.Stdout != "" {
			t.Errorf("%s: got %q, want nothing", name, out.Stdout)
		}
	}
	shared, err := os.CreateTemp("/dev/shm", "sandboxmcp")
	if err != nil {
		t.Skipf("no file can be made in /dev/shm: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(shared.Name()) })
	if _, err := shared.WriteString("CANARY\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := b.exec("grep -rh . " + filepath.Join(b.root, "other")); err != nil || out.Stdout != "BESIDE\n" { // Landlock alone
		t.Errorf("everything: got %q, %v, want the file beside the devices alone", out.Stdout, err)
	}
	for _, path := range []string{"/proc/version", "/dev/null"} {
		if out, err := b.exec("cat " + path); err != nil || !out.Success {
			t.Errorf("%s: got %+v, %v, want that it can be read", path, out, err)
		}
	}
}

// TestNothingInDevIsRead: a command reads no file and no device of /dev but the harmless devices, also if a word or its directory names
// another one.
func TestNothingInDevIsRead(t *testing.T) {
	shared, err := os.CreateTemp("/dev/shm", "sandboxmcp")
	if err != nil {
		t.Skipf("no file can be made in /dev/shm: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(shared.Name()) })
	if _, err := shared.WriteString("CANARY\n"); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = append(c.Allowed, "grep") })
	for _, line := range []string{"cat " + shared.Name(), "cat " + filepath.Base(shared.Name()), "grep . " + shared.Name()} {
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: "/dev/shm"}, noMasks{})
		if err != nil || out.Success || out.Stdout != "" {
			t.Errorf("%s: got %+v, %v, want nothing", line, out, err)
		}
	}
}

// TestADeviceIsNoArgument: a device can have a name anywhere.
func TestADeviceIsNoArgument(t *testing.T) {
	b := open(t)
	node := filepath.Join(b.root, "node")
	if err := syscall.Mknod(node, syscall.S_IFCHR|0o600, 1<<8|3); err != nil {
		t.Skipf("no device can be made: %v", err)
	}
	b.wantRefused("cat "+node, sandboxmcp.CodeHostPathDenied)
}

// TestFilesAreKeptByAMountToo: a mount below a root may show a directory once more in which the file tools do not write.
func TestFilesAreKeptByAMountToo(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	dir := t.TempDir()
	b := open(t, func(c *host.Config) {
		c.Started = []string{filepath.Join(dir, "started")}
		c.Found = func(context.Context) ([]string, error) { return []string{filepath.Join(dir, "found")}, nil }
		c.Roots = append(c.Roots, filepath.Join(dir, "own"))
	})
	for _, name := range []string{"started", "found", "home", "home/.own", "own", "plain"} {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o755), os.Mkdir(filepath.Join(b.root, name), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Join(dir, "home"), u.HomeDir)
	for _, name := range []string{"started", "found", "home", "plain"} {
		mount(t, filepath.Join(dir, name), filepath.Join(b.root, name))
	}
	mount(t, filepath.Join(dir, "home/.own"), filepath.Join(dir, "own")) // the settings open it
	if err := os.Mkdir(filepath.Join(b.root, "part"), 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Join(b.root, "part"), "/var/lib") // the settings do not open that
	for path, want := range map[string]sandboxmcp.Code{
		b.root + "/started/new": sandboxmcp.CodeHostPathDenied, b.root + "/found/new": sandboxmcp.CodeHostPathDenied, b.root + "/home/.new": sandboxmcp.CodeHostPathDenied, b.root + "/plain/new": "", dir + "/own/new": "", b.root + "/part/new": sandboxmcp.CodeHostPathDenied,
	} {
		_, err := b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: path, Content: "x"}, noMasks{})
		wantCode(t, path, err, want)
	}
}
