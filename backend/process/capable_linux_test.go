package process_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// incapable is the environment variable by which TestRootWithoutRightsShowsDirectories names a directory to its child.
const incapable = "SANDBOXMCP_TEST_INCAPABLE"

// TestRootWithoutRightsShowsDirectories: root in a container mostly has no CAP_SYS_ADMIN. Its sandboxes see the directories
// that every user may read, and its own: the workspace, interpreters outside of /usr, and package sets.
func TestRootWithoutRightsShowsDirectories(t *testing.T) {
	if dir := os.Getenv(incapable); dir != "" {
		showDirectories(t, dir)
		return
	}
	testkit.Root(t)
	dir := workspace(t)
	if err := errors.Join(os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755), os.WriteFile(filepath.Join(dir, "f"), []byte("shown"), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRootWithoutRightsShowsDirectories$", "-test.v")
	cmd.Env = append(os.Environ(), incapable+"="+dir)
	var out []byte
	err := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		var e error
		for _, c := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH} { // an engine lends none of them
			e = errors.Join(e, unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0))
		}
		if e == nil {
			out, e = cmd.CombinedOutput()
		}
		err <- e
	}()
	if e := <-err; e != nil {
		t.Fatalf("%v: %s", e, out)
	}
}

// showDirectories is the child, without CAP_SYS_ADMIN.
func showDirectories(t *testing.T, dir string) {
	if fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err == nil {
		_ = unix.Close(fd)
		t.Fatal("this process may copy mounts")
	}
	b := newBackend(func(c *process.Config) { c.Shown = dir })(t)
	defer func() { _ = b.Close(t.Context()) }()
	s := spec("shows")
	s.Trees = []backend.Tree{{Host: dir, Inside: backend.PackageDir + "/first"}}
	sb, err := b.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	if err = sb.Attach(t.Context(), backend.Tree{Host: dir, Inside: backend.PackageDir + "/second"}); err != nil {
		t.Fatal(err)
	}
	const want = "shownshownshown"
	if got := sh(t, sb, "cd "+backend.PackageDir+"; cat first/f second/f "+process.WorkspaceDir+"/f; (echo x >first/g) 2>/dev/null; :"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	own := filepath.Join(t.TempDir(), "own")
	if err = errors.Join(os.Mkdir(own, 0o700), os.Mkdir(filepath.Join(own, "packages"), 0o755)); err != nil {
		t.Fatal(err)
	}
	third := backend.Tree{Host: filepath.Join(own, "packages"), Inside: backend.PackageDir + "/third"}
	if err = errors.Join(os.WriteFile(filepath.Join(third.Host, "f"), []byte("own"), 0o644), sb.Attach(t.Context(), third)); err != nil {
		t.Fatalf("a directory below one of root: %v", err)
	}
	if got := sh(t, sb, "cat "+third.Inside+"/f; (echo x >"+third.Inside+"/g) 2>/dev/null; :"); got != "own" {
		t.Errorf("a directory below one of root: got %q, want the text of its file, own", got)
	}
	below := newBackend(func(c *process.Config) { c.Shown = third.Host })(t)
	defer func() { _ = below.Close(t.Context()) }()
	shown, err := below.Open(t.Context(), spec("below"))
	if err != nil {
		t.Fatalf("a workspace below a directory of root: %v", err)
	}
	defer func() { _ = shown.Close(t.Context()) }()
	if got := sh(t, shown, "cat "+process.WorkspaceDir+"/f; (echo x >"+process.WorkspaceDir+"/g) 2>/dev/null; :"); got != "own" {
		t.Errorf("a workspace below a directory of root: got %q, want the text of its file, own", got)
	}
	if err = os.Chown(own, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	err = sb.Attach(t.Context(), backend.Tree{Host: third.Host, Inside: backend.PackageDir + "/fourth"})
	if e, ok := errors.AsType[*sandboxmcp.Error](err); !ok || !strings.Contains(e.Message, "without CAP_SYS_ADMIN") || !strings.Contains(e.Hint, "as an ordinary user") {
		t.Errorf("a directory below one of another user: got %v, want an error that says which right is missing", err)
	}
}
