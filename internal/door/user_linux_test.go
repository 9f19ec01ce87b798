package door_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// asClient makes the test program a client: it asks the address, with the headers after it,
// and prints the status and the body.
const asClient = "SANDBOXMCP_TEST_CLIENT"

func TestMain(m *testing.M) { os.Exit(testkit.RunOrChild(m, asClient, client)) }

func client(args string) error {
	words := strings.Split(args, "|")
	req, err := http.NewRequest(http.MethodGet, "http://"+words[0]+"/x", nil)
	if err != nil {
		return err
	}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		req.Header.Set(name, value)
	}
	resp, err := new(http.Transport).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Fprintln(os.Stdout, resp.StatusCode, string(body))
	return err
}

// askAs starts this test program as a client, as a user or, with -1, as this one.
func askAs(t *testing.T, uid int, addr string, headers ...string) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "door") //nolint:usetesting // other users may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	if err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, own, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{asClient + "=" + strings.Join(append([]string{addr}, headers...), "|")}
	if uid >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the client: %v, %s", err, out)
	}
	return string(out)
}

// TestOwnUserNeedsNoKey: a program of the server's user needs no key on loopback, unless the
// request came through a proxy.
func TestOwnUserNeedsNoKey(t *testing.T) {
	s := open(t, door.Config{Local: sandboxmcp.NewSecret("local-key")})
	if out := askAs(t, -1, s.addr); !strings.HasPrefix(out, "200 ") || !strings.Contains(out, `"home"`) || !strings.Contains(out, `"Forms":true`) {
		t.Errorf("a program of the same user: got %q, want 200 and that it shows forms", out)
	}
	if out := askAs(t, -1, s.addr, "X-API-Key=local-key"); !strings.HasPrefix(out, "200 ") || !strings.Contains(out, `"Forms":true`) {
		t.Errorf("a program of the same user with the key: got %q, want 200 and that it shows forms", out)
	}
	if out := askAs(t, -1, s.addr, "X-API-Key=local-key", "Via=1.1 proxy"); !strings.HasPrefix(out, "200 ") || !strings.Contains(out, `"Forms":false`) {
		t.Errorf("through a proxy: got %q, want 200 and that it shows no forms", out)
	}
	for _, header := range []string{"X-Forwarded-For=192.0.2.1", "Forwarded=for=192.0.2.1", "Via=1.1 proxy"} {
		if out := askAs(t, -1, s.addr, header); !strings.HasPrefix(out, "401 ") {
			t.Errorf("%s: got %q, want 401", header, out)
		}
	}
	if out := askAs(t, -1, s.addr, "X-API-Key=wrong"); !strings.HasPrefix(out, "401 ") {
		t.Errorf("a wrong key: got %q, want 401", out)
	}
}

// TestAnotherUserNeedsTheKey: other users of the machine need the key, root not excepted if
// the server is not root's.
func TestAnotherUserNeedsTheKey(t *testing.T) {
	testkit.Root(t)
	s := open(t, door.Config{Local: sandboxmcp.NewSecret("local-key")})
	if out := askAs(t, 65124, s.addr); !strings.HasPrefix(out, "401 ") {
		t.Errorf("another user without a key: got %q, want 401", out)
	}
	if out := askAs(t, 65124, s.addr, "X-API-Key=local-key"); !strings.HasPrefix(out, "200 ") || !strings.Contains(out, `"Forms":false`) {
		t.Errorf("another user with the key: got %q, want 200 and that it shows no forms", out)
	}
}

// TestConnectionsOfTheServerItselfNeedAKey: the server connects to addresses that programs in
// sandboxes name. Those connections are not the user's.
func TestConnectionsOfTheServerItselfNeedAKey(t *testing.T) {
	s := open(t, door.Config{Local: sandboxmcp.NewSecret("local-key")})
	s.refused("this process", s.ask("GET", "/x", ""), http.StatusUnauthorized, sandboxmcp.CodeUnauthenticated)
	s.holds("this process with the key", s.ask("GET", "/x", "", "X-API-Key", "local-key"), "http", "home")
}
