package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// serveForks is a server with forks that are deaf to everything, and with ready ones.
func serveForks(ctx context.Context, b *process.Backend) int {
	program, err := os.ReadFile("testdata/hostile/outlives-its-run.py")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	f := &forking{Backend: b}
	f.hatch(ctx)
	for range 4 {
		sb, err := b.Open(ctx, spec("dying"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		p, _ := forkable(string(program))
		r, w, _ := os.Pipe()
		p.Stdout = w
		if _, err := sb.Start(ctx, p); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if line, _ := bufio.NewReader(r).ReadString('\n'); !strings.HasPrefix(line, "pid:") {
			return 2
		}
	}
	if b.Forks() < 4 || b.Pool()["zygotes"] != 1 {
		return 2
	}
	fmt.Println("ready")
	select {}
}

// TestForksDieWithTheServer: when the server is killed, forks, their children, the zygote and
// the ready sandboxes end, although no process of the server is left to end them.
func TestForksDieWithTheServer(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for range 3 {
		temp := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "SANDBOXMCP_TEST_SERVER=forks", "SANDBOXMCP_TEST_FORK=1", "SANDBOXMCP_TEST_TEMP=" + temp}
		startServer(t, cmd)
		all := below(cmd.Process.Pid)
		if len(all) < 4*6 {
			t.Errorf("processes of the server: got %d, want at least %d", len(all), 4*6)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		var left []int
		testkit.Within(t, time.Minute, func() bool {
			left = slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return !lives(pid) })
			return len(left) == 0
		})
		for _, pid := range left {
			t.Errorf("process %d: got it alive a minute after the server, want it ended", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// below lists the processes below one.
func below(pid int) (all []int) {
	for _, c := range childrenOf(pid) {
		all = append(append(all, c), below(c)...)
	}
	return all
}

func lives(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return len(b) > i+2 && b[i+2] != 'Z'
}

// TestForksThatEndAtOnce: the end of a fork is reported even if it comes before init has
// finished the walls and waits for its children.
func TestForksThatEndAtOnce(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("once")
	hatched(t, b, sp)
	once := func() error {
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			return err
		}
		defer func() { _ = sb.Close(t.Context()) }()
		p, out := forkable("import posix; posix._exit(3)")
		r, err := sb.Start(t.Context(), p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if e, err := r.Wait(ctx); err != nil || e.Code != 3 {
			return fmt.Errorf("got %+v, %w, %s", e, err, out)
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 60 {
				if err := once(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
