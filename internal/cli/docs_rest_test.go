package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// freePort returns a TCP port of loopback that nothing listens on.
func freePort(t *testing.T) int {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
}

// servesHTTP returns a script that starts a server on the port, waits until it is ready and ends it.
func servesHTTP(port int) string {
	return fmt.Sprintf(`sandboxmcp serve --transport http --port %d >/dev/null 2>&1 & server=$!
for n in {1..300}; do curl -sf http://127.0.0.1:%d/readyz >/dev/null && break; sleep 0.1; done
curl -sf http://127.0.0.1:%d/readyz >/dev/null; kill $server; wait $server || true`, port, port, port)
}

// restIDs names the field of an answer that has the ID in later paths, by the first part of the path.
var restIDs = map[string]string{"execute": "job_id", "jobs": "job_id", "sessions": "session_id", "approvals": "approval_id"}

var documented = regexp.MustCompile(`^curl .*'?http://127\.0\.0\.1:8080/([a-z.]+)(\S*)$`)

// TestRESTDocumentRuns runs each curl command of docs/rest.md against a server with a state directory and a
// port of the test's own. ID is that of an earlier answer, so a command waits until there is one.
func TestRESTDocumentRuns(t *testing.T) {
	testkit.Need(t, "userns", canRun(), "doctor says that no sandbox can be built")
	_, err := exec.LookPath("curl")
	testkit.Need(t, "curl", err == nil, "curl is not installed")
	const key = "key-of-the-test-0123456789"
	at, port := newPlace(t), strconv.Itoa(freePort(t))
	at.env = append(at.env, "KEY="+key, "SANDBOXMCP_API_KEYS="+key+"=*")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server := at.command(ctx, "sandboxmcp", "serve", "--transport", "http", "--port", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	}()
	if !testkit.Within(t, time.Minute, func() bool {
		return at.command(ctx, "curl", "-sf", "http://127.0.0.1:"+port+"/readyz").Run() == nil
	}) {
		t.Fatal("the server is not ready after a minute")
	}
	var queue []string
	for _, b := range blocksOf(t, filepath.Join("..", "..", "docs", "rest.md")) {
		queue = append(queue, strings.TrimSpace(b.text))
	}
	if len(queue) < 27 {
		t.Fatalf("got %d blocks, want at least 27", len(queue))
	}
	ids := map[string]string{}
	for tries := 2 * len(queue); len(queue) > 0 && tries > 0; tries-- {
		line := queue[0]
		queue = queue[1:]
		m := documented.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%s is not a curl command with a URL of the server", line)
			continue
		}
		field := restIDs[m[1]]
		if strings.Contains(m[2], "/ID") && ids[field] == "" {
			queue = append(queue, line)
			continue
		}
		if m[1] == "install" && !testkit.Demanded("registry") {
			continue // it needs an index of packages
		}
		answer := runCurl(ctx, t, at, line, strings.NewReplacer(":8080", ":"+port, "/ID", "/"+ids[field], "wait_seconds=30", "wait_seconds=1"))
		var fields map[string]any
		if json.Unmarshal([]byte(answer), &fields) == nil {
			if id, ok := fields[field].(string); ok {
				ids[field] = id
			}
		}
	}
	if len(queue) > 0 {
		t.Errorf("no answer had the ID of %q", queue)
	}
}

// runCurl runs a command of the page, which must be answered with a status of success, and returns the answer.
func runCurl(ctx context.Context, t *testing.T, at place, line string, change *strings.Replacer) string {
	t.Helper()
	script := strings.Replace(change.Replace(line), "curl ", "curl -sS -w '\\n%{http_code}' ", 1)
	stream := strings.Contains(line, "curl -N")
	if stream {
		script += " --max-time 2 || [ $? = 28 ]" // events do not end
	}
	out, err := at.command(ctx, "bash", "-c", script).CombinedOutput()
	end := strings.LastIndexByte(string(out), '\n')
	if err != nil || end < 0 || !strings.Contains(string(out[end:]), "20") {
		t.Errorf("%s: got %v and %s, want a status of success", line, err, out)
		return ""
	}
	return string(out[:end])
}
