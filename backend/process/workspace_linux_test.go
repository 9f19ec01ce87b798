package process_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// ordinary is the user that a workspace belongs to if the server is root.
const ordinary = 65534

// workspace returns a directory that sandboxes may share. Other users may pass through the directories above it.
func workspace(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// owner returns the user that files in a workspace belong to.
func owner() int {
	if os.Geteuid() == 0 {
		return ordinary
	}
	return os.Geteuid()
}

func group() int {
	if os.Geteuid() == 0 {
		return ordinary
	}
	return os.Getegid()
}

// sharing opens a sandbox that may write to a directory.
func sharing(t *testing.T, dir string, change ...func(*backend.Spec)) backend.Sandbox {
	t.Helper()
	b := newBackend(func(c *process.Config) { c.Shown, c.Writable = dir, true })(t)
	t.Cleanup(func() { _ = b.Close(t.Context()) })
	sp := spec("shares")
	for _, f := range change {
		f(&sp)
	}
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatalf("a sandbox with a writable workspace: got %v, want no error", err)
	}
	t.Cleanup(func() { _ = sb.Close(t.Context()) })
	return sb
}

// sh runs a shell script in a sandbox.
func sh(t *testing.T, sb backend.Sandbox, script string) string {
	t.Helper()
	return backendtest.Output(t, sb, "/bin/sh", "-c", script)
}

// TestTheWorkspaceCanBeWritten: what programs write is on the host and belongs to an ordinary
// user. The observed walls say that not everything is read-only.
func TestTheWorkspaceCanBeWritten(t *testing.T) {
	dir := workspace(t)
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(old, owner(), group()); err != nil {
		t.Fatal(err)
	}
	sb := sharing(t, dir)
	const script = `cd /workspace; cat old; echo after >> old; mkdir -p a/b; echo new > a/b/new; mv a/b/new a/moved; chmod 750 a/moved; id -u; stat -c %u old a/moved; grep -c " /workspace .*nosuid,nodev" /proc/self/mountinfo`
	if got, want := sh(t, sb, script), "before\n1000\n1000\n1000\n1\n"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	for name, want := range map[string]string{"old": "before\nafter\n", "a/moved": "new\n"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(b) != want {
			t.Errorf("%s on the host: got %q, %v, want %q", name, b, err, want)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || int(st.Uid) != owner() {
			t.Errorf("%s belongs to user %d, %v, want %d", name, st.Uid, err, owner())
		}
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for wall, want := range map[string]bool{"read-only root": false, "read-only root except the shared directory": true, "no set-user-ID files": true} {
		if got := slices.Contains(iso.Walls, wall); got != want {
			t.Errorf("wall %q: got %v, want %v; all: %q", wall, got, want, iso.Walls)
		}
	}
	if !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "/workspace:") }) {
		t.Errorf("weak: got %q, want one of /workspace", iso.Weak)
	}
}

// TestTheWorkspaceOfReadOnlyServersIsNot: without Writable nothing of it can be changed.
func TestTheWorkspaceOfReadOnlyServersIsNot(t *testing.T) {
	dir := workspace(t)
	b := newBackend(func(c *process.Config) { c.Shown = dir })(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("reads"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	if got, want := sh(t, sb, "(echo x > /workspace/made) 2> /dev/null || echo refused"), "refused\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if iso, err := sb.Isolation(t.Context()); err != nil || !slices.Contains(iso.Walls, "read-only root") {
		t.Errorf("walls: got %q, %v, want a read-only root", iso.Walls, err)
	}
}

// TestASandboxApartDoesNotSeeTheWorkspace: the product's helpers, such as the browser, work on
// data of strangers.
func TestASandboxApartDoesNotSeeTheWorkspace(t *testing.T) {
	for name, writable := range map[string]bool{"ReadOnly": false, "Writable": true} {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("secret\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			b := newBackend(func(c *process.Config) { c.Shown, c.Writable = dir, writable })(t)
			defer func() { _ = b.Close(t.Context()) }()
			for _, apart := range []bool{true, false, true} {
				sp := spec("apart")
				sp.Apart = apart
				sb, err := b.Open(t.Context(), sp)
				if err != nil {
					t.Fatal(err)
				}
				want := "secret\n"
				if apart {
					want = "none\n"
				}
				if got := sh(t, sb, "cat /workspace/secret 2> /dev/null || echo none; (echo x > /workspace/made) 2> /dev/null; umount /workspace 2> /dev/null; :"); got != want {
					t.Errorf("apart %v: got %q, want %q", apart, got, want)
				}
				if iso, err := sb.Isolation(t.Context()); err != nil || slices.Contains(iso.Walls, "read-only root") != (apart || !writable) {
					t.Errorf("apart %v, walls: got %q, %v", apart, iso.Walls, err)
				}
				if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != (writable && !apart) {
					t.Errorf("apart %v: a file was made: %v", apart, err == nil)
				}
				_ = os.Remove(filepath.Join(dir, "made"))
				if err := sb.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAttackSetUserIDInTheWorkspace: no call gives a file a set-user-ID bit, with which other
// users of the host would act as its owner.
func TestAttackSetUserIDInTheWorkspace(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no python3")
	dir := workspace(t)
	sb := sharing(t, dir)
	const program = `
import ctypes, os, stat
libc, at = ctypes.CDLL(None, use_errno=True), -100
os.chdir("/workspace")
open("f", "w").write("x")
fd, here = os.open("f", os.O_RDWR), os.open(".", os.O_RDONLY)
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
tries = {
    "chmod": lambda: os.chmod("f", 0o4755), "chmod group": lambda: os.chmod("f", 0o2755), "fchmod": lambda: os.fchmod(fd, 0o6755),
    "fchmodat": lambda: os.chmod("f", 0o4755, dir_fd=here), "open": lambda: os.open("o", os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat": lambda: os.open("a", os.O_CREAT | os.O_WRONLY, 0o6755, dir_fd=here), "mknod": lambda: os.mknod("n", stat.S_IFREG | 0o4755),
    "mknodat": lambda: os.mknod("m", stat.S_IFREG | 0o4755, dir_fd=here), "unnamed": lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
    "directory": lambda: os.chmod(".", 0o2755),
}
for name, try_it in tries.items():
    try: try_it(); print("done:", name)
    except PermissionError: pass
def raw(nr, *args):
    ctypes.set_errno(0)
    return libc.syscall(nr, *args), ctypes.get_errno()
for name, nr, args in [("fchmodat2", 452, (at, b"f", 0o4755, 0)), ("fchmodat2 with high bits", 452, (at, b"f", 0x10000 | 0o4755, 0)), ("openat2", 437, (at, b"p", ctypes.byref(how), 24))]:
    r = raw(nr, *args)
    if r[0] >= 0 or r[1] not in (1, 38): print("done:", name, r)
os.umask(0)
os.mkdir("d", 0o6755)
os.chmod("f", 0o1777)
print("tried")
`
	if got, want := backendtest.Output(t, sb, python(), "-c", program), "tried\n"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s has mode %v, want no set-user-ID or set-group-ID bit", path, info.Mode())
		}
		found++
		return err
	})
	if err != nil || found < 3 {
		t.Errorf("got %d files, %v, want the attack's three at least", found, err)
	}
}

// TestAttackSpecialFilesInTheWorkspace: links, pipes, sockets and devices could mislead programs
// of the host that read or write there.
func TestAttackSpecialFilesInTheWorkspace(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no python3")
	dir := workspace(t)
	sb := sharing(t, dir)
	const program = `
import os, socket, stat
os.chdir("/workspace")
os.symlink("/etc/shadow", "/tmp/link"), os.mkfifo("/tmp/pipe")
tries = {
    "symlink": lambda: os.symlink("/etc/shadow", "link"), "pipe": lambda: os.mkfifo("pipe"), "device": lambda: os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "whiteout": lambda: os.mknod("white", stat.S_IFCHR, 0), "socket": lambda: socket.socket(socket.AF_UNIX).bind("socket"), "node": lambda: os.mknod("node", stat.S_IFSOCK | 0o666),
    "move a link": lambda: os.rename("/tmp/link", "link"), "link a link": lambda: os.link("/tmp/link", "link", follow_symlinks=False),
    "move a pipe": lambda: os.rename("/tmp/pipe", "pipe"), "link a host's file": lambda: os.link("/etc/passwd", "passwd"), "up": lambda: open("../usr/made", "w"),
}
for name, try_it in tries.items():
    try: try_it(); print("done:", name)
    except OSError: pass
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
open("whole", "w").close()
libc.renameat2(-100, b"whole", -100, b"renamed", 4) # leaves a device, a whiteout, in its place
for name in "whole", "renamed":
    if os.path.lexists(name): print(name, oct(os.lstat(name).st_mode)) if not stat.S_ISREG(os.lstat(name).st_mode) else os.unlink(name)
print(sorted(os.listdir(".")), os.path.samefile("..", "/"))
`
	if got, want := backendtest.Output(t, sb, python(), "-c", program), "[] True\n"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("on the host: got %v, %v, want an empty directory", entries, err)
	}
}

// TestAttackFilesOfOthersInTheWorkspace: in a workspace of an ordinary user, programs of a server of
// root change nothing that belongs to another user, whatever its mode is, and make nothing for one.
func TestAttackFilesOfOthersInTheWorkspace(t *testing.T) {
	testkit.Root(t)
	dir := workspace(t)
	private, open, below := filepath.Join(dir, "private"), filepath.Join(dir, "open"), filepath.Join(dir, "below")
	if err := os.WriteFile(private, []byte("root\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(open, []byte("root\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, below} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	sb := sharing(t, dir)
	const script = `cd /workspace; for try in "cat private" "sh -c 'echo x >> open'" "sh -c 'echo x > below/made'" "rm -f open" "mv private moved" "chmod 777 private" "chown 0 own" "chown 0:0 own" "chmod 666 open" "touch -d @0 open"; do
	: > own; eval "$try" > /dev/null 2>&1 && echo "done: $try"; done; rm own; echo tried`
	if got, want := sh(t, sb, script), "tried\n"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	for path, want := range map[string]string{private: "root\n", open: "root\n"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: got %q, %v, want %q", path, b, err, want)
		}
	}
	if entries, err := os.ReadDir(below); err != nil || len(entries) != 0 {
		t.Errorf("root's directory: got %v, %v, want it empty", entries, err)
	}
}

// TestTheWorkspaceOfRootIsRefused: programs of a server of root would make files of root.
func TestTheWorkspaceOfRootIsRefused(t *testing.T) {
	testkit.Root(t)
	for name, ids := range map[string][2]int{"User": {0, ordinary}, "Group": {ordinary, 0}} {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			if err := os.Chown(dir, ids[0], ids[1]); err != nil {
				t.Fatal(err)
			}
			refusesToShare(t, newBackend(func(c *process.Config) { c.Shown, c.Writable = dir, true })(t), "belongs to root")
		})
	}
}

// TestNothingTakesThePlaceOfTheWorkspace: a user who can change a parent directory of the workspace can replace it by a link or by
// another directory. The sandbox refuses both, because its programs would get the rights of the other directory's owner.
func TestNothingTakesThePlaceOfTheWorkspace(t *testing.T) {
	for name, ids := range map[string][2]int{"User": {ordinary + 1, ordinary}, "Group": {ordinary, ordinary + 1}} {
		t.Run(name, func(t *testing.T) {
			testkit.Root(t)
			dir, other := workspace(t), workspace(t)
			if err := os.Chown(other, ids[0], ids[1]); err != nil {
				t.Fatal(err)
			}
			b := newBackend(func(c *process.Config) { c.Shown, c.Writable = dir, true })(t)
			if err := errors.Join(os.Rename(dir, dir+"-old"), os.Rename(other, dir)); err != nil {
				t.Fatal(err)
			}
			refusesToShare(t, b, "another user or group")
		})
	}
	for name, writable := range map[string]bool{"Link": true, "LinkReadOnly": false} {
		t.Run(name, func(t *testing.T) {
			if !writable && os.Geteuid() == 0 {
				t.Skip("root's sandboxes see a read-only workspace as an unprivileged user")
			}
			dir, other := workspace(t), workspace(t)
			b := newBackend(func(c *process.Config) { c.Shown, c.Writable = dir, writable })(t)
			top := filepath.Dir(dir)
			if err := errors.Join(os.Rename(top, top+"-old"), os.Symlink(filepath.Dir(other), top)); err != nil {
				t.Fatal(err)
			}
			if sb, err := b.Open(t.Context(), spec("shares")); err == nil {
				_ = sb.Close(t.Context())
				t.Error("a sandbox with what a link leads to: got no error")
			}
			_ = b.Close(t.Context())
		})
	}
	t.Run("LinkPlain", func(t *testing.T) { // each sandbox of tier L1 opens the directory
		dir, other := workspace(t), workspace(t)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "f"), []byte("OWN"), 0o644), os.WriteFile(filepath.Join(other, "f"), []byte("CANARY"), 0o644)); err != nil {
			t.Fatal(err)
		}
		b := newBackend(process.WithoutNamespaces, func(c *process.Config) { c.Shown, c.NoPool = dir, true })(t)
		defer func() { _ = b.Close(t.Context()) }()
		read := func() string {
			sb, err := b.Open(t.Context(), spec("shares"))
			if err != nil {
				return err.Error()
			}
			defer func() { _ = sb.Close(t.Context()) }()
			return backendtest.Output(t, sb, "/bin/sh", "-c", "cat "+dir+"/f 2>&1 || true")
		}
		if got := read(); got != "OWN" {
			t.Errorf("got %q, want the file of the workspace", got)
		}
		top := filepath.Dir(dir)
		if err := errors.Join(os.Rename(top, top+"-old"), os.Symlink(filepath.Dir(other), top)); err != nil {
			t.Fatal(err)
		}
		if got := read(); strings.Contains(got, "CANARY") {
			t.Errorf("got %q, want no file that a link leads to", got)
		}
	})
}

// TestFileSystemsThatMapNoIDsAreRefused: an overlay, as in a container, cannot be mounted with mapped
// ids. The refusal says so, and no weaker mount stands in.
func TestFileSystemsThatMapNoIDsAreRefused(t *testing.T) {
	testkit.Root(t)
	dir := workspace(t)
	if err := unix.Mount("none", dir, "ramfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		t.Skipf("ramfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.Chown(dir, ordinary, ordinary); err != nil {
		t.Fatal(err)
	}
	refusesToShare(t, newBackend(func(c *process.Config) { c.Shown, c.Writable = dir, true })(t), "cannot map user ids")
}

// TestTierL1SharesNothingForWriting: without namespaces nothing keeps devices and set-user-ID
// programs of the directory from having an effect.
func TestTierL1SharesNothingForWriting(t *testing.T) {
	dir := workspace(t)
	refusesToShare(t, newBackend(process.WithoutNamespaces, func(c *process.Config) { c.Shown, c.Writable = dir, true })(t), "needs namespaces")
}

// TestTierL1ReadsTheWorkspaceAtItsOwnPath: it has no mounts that could show it elsewhere.
func TestTierL1ReadsTheWorkspaceAtItsOwnPath(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "shared") //nolint:usetesting // not below /tmp, which is every sandbox's own
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newBackend(process.WithoutNamespaces, func(c *process.Config) { c.Shown = dir })(t)
	defer func() { _ = b.Close(t.Context()) }()
	for apart, want := range map[bool]string{false: "here\n", true: "refused\n"} {
		sp := spec("l1")
		sp.Apart = apart
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			testkit.Sandbox(t, false, err.Error())
		}
		if got := backendtest.Output(t, sb, "/bin/sh", "-c", "cat $0/file 2> /dev/null || echo refused; (echo x > $0/made) 2> /dev/null || :", dir); got != want {
			t.Errorf("apart %v: got %q, want %q", apart, got, want)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
		t.Error("a program wrote to the workspace, want that it can only read it")
	}
}

// refusesToShare wants that Open fails for a reason and builds no weaker sandbox.
func refusesToShare(t *testing.T, b backend.Backend, why string) {
	t.Helper()
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("refused"))
	if err == nil {
		_ = sb.Close(t.Context())
	}
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want isolation_unavailable because %q", err, why)
	}
}

// TestSharedMountsLeaveNothing: neither a mount of the host nor a process stays of the mounts that
// sandboxes of a server of root get.
func TestSharedMountsLeaveNothing(t *testing.T) {
	testkit.Root(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	_ = sharing(t, workspace(t))
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("mounts of the host changed, %v", err)
	}
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|syscall.WNOWAIT, nil); err == nil && pid > 0 {
		t.Errorf("process %d has ended and was not waited for", pid)
	}
}
