package process_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestDeathWithTheServer kills a server, as kill -9 does, while programs that are
// deaf to signals, stopped, frozen, in sessions of their own and busy run in four of its
// sandboxes. All of it ends, long before the programs end by themselves.
func TestDeathWithTheServer(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, c := range map[string]struct {
		env  string
		stop bool // builder and spawners are stopped first: they cannot carry anything out
	}{
		"Killed":                   {},
		"KilledWithBuilderStopped": {stop: true},
		"KilledInTierL1":           {env: "SANDBOXMCP_TEST_PLAIN=1"},
		"KilledWhileFrozen":        {env: "SANDBOXMCP_TEST_FROZEN=1", stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			rounds := 5
			if c.stop {
				rounds = 2
			}
			var took []time.Duration
			for range rounds {
				took = append(took, die(t, c.env, c.stop))
			}
			slices.Sort(took)
			t.Logf("all dead after p50 %v, max %v (%d times)", took[len(took)/2].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond), len(took))
		})
	}
}

// die starts a server, kills it and tells how long its programs lived on.
func die(t *testing.T, env string, stop bool) time.Duration {
	t.Helper()
	marker := "dying-" + rand.Text()
	temp := t.TempDir()
	for _, d := range []string{temp, filepath.Dir(temp)} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SANDBOXMCP_TEST_SERVER=" + marker, "SANDBOXMCP_TEST_TEMP=" + temp, env}
	cmd.Stdin = bytes.NewReader(backendtest.Payload(t, "d05-hostile.py"))
	startServer(t, cmd)
	if n := len(backendtest.Alive(marker)); n < 12 {
		t.Errorf("processes in four sandboxes: got %d, want at least 12", n)
	}
	var stopped []int
	if stop {
		for _, builder := range childrenOf(cmd.Process.Pid) {
			stopped = append(append(stopped, builder), childrenOf(builder)...) // and the spawners
		}
		for _, pid := range stopped {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Errorf("stop %d: got %v, want nil", pid, err)
			}
		}
	}
	begin := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	left := backendtest.Alive(marker)
	for len(left) > 0 && time.Since(begin) < time.Minute {
		left = backendtest.Alive(marker)
	}
	took := time.Since(begin)
	for _, pid := range append(left, stopped...) { // a stopped builder is the test's own and has to go
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(left) > 0 {
		t.Errorf("processes after the server: got %d, %v; want none", len(left), left)
	}
	return took
}

func childrenOf(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for w := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(w); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// startServer starts a test server and waits until it says that it is ready.
func startServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = cmd.Process.Kill()
		t.Fatalf("the server's first line: got %q, %v; want ready", line, err)
	}
}
