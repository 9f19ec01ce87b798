package api_test

import (
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

// stranger is a user without any right here.
const stranger = 65124

// What the test's own program does when it is started anew with one of these.
const (
	asCaller = "SANDBOXMCP_TEST_CALLER" // says hello on the socket that it names, and prints the answer
	asServer = "SANDBOXMCP_TEST_SERVER" // has a server in the directory that it names until its stdin ends
)

// TestAsAnother is no test: it is the other side of those below.
func TestAsAnother(t *testing.T) {
	if socket := os.Getenv(asCaller); socket != "" {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "unix", socket)
		if err == nil {
			_, err = io.WriteString(conn, "GET /v1/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		}
		answer := []byte{}
		if err == nil {
			answer, err = io.ReadAll(conn)
		}
		_, _ = fmt.Fprintf(os.Stdout, "%s %v\n", answer, err)
	}
	if dir := os.Getenv(asServer); dir != "" {
		s, err := api.Listen(t.Context(), api.Config{StateDir: dir, Handler: &handler{}, Logger: quiet()})
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

// open makes a directory that others may come to: into the test's own nobody else
// may look.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "control") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// again starts this program once more, as somebody else.
func again(t *testing.T, uid uint32, env string) *exec.Cmd {
	t.Helper()
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := open(t)
	program := filepath.Join(dir, "program")
	if err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, own, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAsAnother$")
	cmd.Env = []string{env}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// Another user is refused although every file on the way would let them in: the
// kernel says who is asking.
func TestAnotherUserIsRefused(t *testing.T) {
	testkit.Root(t)
	dir := open(t)
	s, _ := listen(t, dir)
	socket := filepath.Join(dir, "run", s.Hello().ID+".sock")
	for _, p := range []string{dir, filepath.Dir(socket)} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := again(t, stranger, asCaller+"="+socket).Output()
	if err != nil || strings.Contains(string(out), "protocol") {
		t.Errorf("the stranger: got %q, %v", out, err)
	}
	if strings.Contains(string(out), "permission denied") {
		t.Errorf("a file's mode refused the stranger, and nothing was tried: %q", out)
	}
	if out, err = again(t, 0, asCaller+"="+socket).Output(); err != nil || !strings.Contains(string(out), `"protocol":1`) {
		t.Errorf("root: got %q, %v", out, err)
	}
}

// Root reaches the server of any user.
func TestRootReachesAUsersServer(t *testing.T) {
	testkit.Root(t)
	dir := open(t)
	if err := os.Chown(dir, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	cmd := again(t, stranger, asServer+"="+dir)
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
	line := make([]byte, 64)
	n, _ := out.Read(line)
	if got := string(line[:n]); got != "ready\n" {
		t.Fatalf("the server says %q", got)
	}
	c := peers(t, dir, 1)[0]
	if _, err = c.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	if err = errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	peers(t, dir, 0)
}
