package clients_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	address = regexp.MustCompile(`MCP is at (http://\S+)`)
	total   = regexp.MustCompile(`Total: (\d+) passed`)
)

// TestConformance runs the official suite of the protocol, with what each revision requires. The
// suite calls tools of its own definition: a build with the tag conformance has them, and
// testdata/conformance lists the scenarios that the program as it is shipped cannot pass without
// them. A scenario on that list that passes is a failure, too.
func TestConformance(t *testing.T) {
	node, suite := installed(t, "node"), installed(t, "node_modules/.bin/conformance")
	for _, build := range []struct {
		name    string
		program func(*testing.T) string
		shipped bool
	}{
		{"with the tools of the suite", withFixtures, false},
		{"as shipped", built, true},
	} {
		t.Run(build.name, func(t *testing.T) {
			t.Parallel()
			bin := build.program(t)
			c := newClient(t, bin, "http://127.0.0.1:9")
			url, end := c.serveHTTP()
			for revision, atLeast := range map[string]int{"2025-11-25": 40, "2026-07-28": 90} {
				argv := []string{node, suite, "server", "--url", url, "--requirements", revision, "-o", filepath.Join(c.home, revision)}
				if build.shipped {
					known, err := filepath.Abs(filepath.Join("testdata", "conformance", revision+".yml"))
					if err != nil {
						t.Fatal(err)
					}
					argv = append(argv, "--expected-failures", known)
				}
				out, exit := c.runBeside(argv...)
				if exit != 0 {
					t.Errorf("%s: got exit code %d, want 0\n%s", revision, exit, summary(out))
				}
				passed := 0
				if m := total.FindStringSubmatch(out); m != nil {
					passed, _ = strconv.Atoi(m[1])
				}
				if passed < atLeast {
					t.Errorf("%s: %d checks passed, want %d at least", revision, passed, atLeast)
				}
			}
			end()
		})
	}
}

// withFixtures builds the program with what the suite calls.
func withFixtures(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "sandboxmcp")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "conformance", "-o", bin, "../../cmd/sandboxmcp")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// summary returns the end of what the suite prints.
func summary(out string) string {
	if i := strings.Index(out, "=== SUMMARY ==="); i >= 0 {
		return out[i:]
	}
	return out
}

// runBeside runs a program beside a server that goes on.
func (c *client) runBeside(argv ...string) (out string, exit int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(c.home, "work"), c.env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		c.t.Fatalf("%s: %v\n%s\n%s", argv[1], err, text, &errs)
	}
	if err != nil {
		c.t.Logf("%s said: %s", argv[1], &errs)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// serveHTTP starts the program over HTTP on a free port. It returns where MCP is, and a function
// that ends the program.
func (c *client) serveHTTP(args ...string) (url string, end func()) {
	c.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), c.bin, append([]string{"serve", "--transport", "http", "--port", "0"}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join(c.home, "work"), append([]string{"SANDBOXMCP_STATE_DIR=" + c.home + "/state"}, c.env...)
	errs := &lockedBuffer{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				c.t.Errorf("the server ended with %v, want no error\n%s", err, errs)
			}
		})
	}
	c.t.Cleanup(end)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if m := address.FindStringSubmatch(errs.String()); m != nil {
			return m[1], end
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the server does not say where it is:\n%s", errs)
		}
	}
}

// lockedBuffer is a buffer that is read while a process writes it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
