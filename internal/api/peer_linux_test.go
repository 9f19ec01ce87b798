package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// stranger is a user that owns nothing on the machine.
const stranger = 65124

// These variables make TestAsAnotherUser one side of a test below.
const (
	asCaller = "SANDBOXMCP_TEST_CALLER" // says hello on the socket of that path, and prints the answer
	asClient = "SANDBOXMCP_TEST_CLIENT" // lists the servers of the directory of that path
	asServer = "SANDBOXMCP_TEST_SERVER" // serves in the directory of that path until its stdin ends
)

// TestAsAnotherUser tests nothing by itself: another test starts it as another user.
func TestAsAnotherUser(t *testing.T) {
	if path := os.Getenv(asCaller); path != "" {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "unix", path)
		if err == nil {
			_, err = io.WriteString(conn, "GET /v1/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		}
		text := []byte{}
		if err == nil {
			text, err = io.ReadAll(conn)
		}
		_, _ = fmt.Fprintf(os.Stdout, "%s %v\n", text, err)
	}
	if dir := os.Getenv(asClient); dir != "" {
		found, err := api.Peers(t.Context(), dir)
		_, _ = fmt.Fprintf(os.Stdout, "found %d: %v\n", len(found), err)
	}
	if dir := os.Getenv(asServer); dir != "" {
		s, err := api.Listen(t.Context(), api.Config{StateDir: dir, Service: &service{}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("ready\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		if err = s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// openDir makes a directory that other users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") //nolint:usetesting // nobody else may enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startAs returns a command that runs this test program as a user.
func startAs(t *testing.T, uid uint32, env string) *exec.Cmd {
	t.Helper()
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	program := filepath.Join(dir, "program")
	if err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, own, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAsAnotherUser$")
	cmd.Env = []string{env}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// unlock lets every user through the files on the way to a socket.
func unlock(t *testing.T, dir, id string) string {
	t.Helper()
	path := filepath.Join(dir, "run", id+".sock")
	for file, mode := range map[string]os.FileMode{dir: 0o755, filepath.Dir(path): 0o755, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestAnotherUserIsRefused: the kernel says which user calls, and another one gets
// no answer although every file mode lets it through.
func TestAnotherUserIsRefused(t *testing.T) {
	testkit.Root(t)
	dir := openDir(t)
	s, _ := listen(t, dir)
	path := unlock(t, dir, s.Hello().ID)
	out, err := startAs(t, stranger, asCaller+"="+path).Output()
	if err != nil || strings.Contains(string(out), "protocol") {
		t.Errorf("the stranger: got %q and %v, want no answer", out, err)
	}
	if strings.Contains(string(out), "permission denied") {
		t.Errorf("the stranger: got %q from a file mode, want a refusal by the server", out)
	}
	if out, err = startAs(t, 0, asCaller+"="+path).Output(); err != nil || !strings.Contains(string(out), `"protocol":1`) {
		t.Errorf("root: got %q and %v, want protocol 1", out, err)
	}
}

// TestServerOfAnotherUserIsNotTrusted: a client believes only its own user's and
// root's servers.
func TestServerOfAnotherUserIsNotTrusted(t *testing.T) {
	testkit.Root(t)
	dir := openDir(t)
	cmd, stop := serverOf(t, dir, stranger)
	ids, err := api.IDs(dir)
	if err != nil || len(ids) != 1 {
		t.Fatalf("got the ids %v and %v, want one", ids, err)
	}
	unlock(t, dir, ids[0])
	out, err := startAs(t, stranger+1, asClient+"="+dir).Output()
	if err != nil || !strings.Contains(string(out), "found 0") || !strings.Contains(string(out), "permission denied") {
		t.Errorf("a third user: got %q and %v, want no server and a refusal", out, err)
	}
	if err = errors.Join(stop(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// TestRootReachesAUsersServer: root is answered by the server of any user.
func TestRootReachesAUsersServer(t *testing.T) {
	testkit.Root(t)
	dir := openDir(t)
	cmd, stop := serverOf(t, dir, stranger)
	c := peers(t, dir, 1)[0]
	if _, err := c.Stats(t.Context()); err != nil {
		t.Errorf("stats: got %v, want success", err)
	}
	if err := errors.Join(stop(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	peers(t, dir, 0)
}

// serverOf starts a server of a user in a directory, and returns when it answers.
func serverOf(t *testing.T, dir string, uid int) (cmd *exec.Cmd, stop func() error) {
	t.Helper()
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd = startAs(t, uint32(uid), asServer+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q and %v from the server, want ready", line, err)
	}
	return cmd, in.Close
}
