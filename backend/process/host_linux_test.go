package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// opened is what a server under odd conditions tells of its sandbox.
type opened struct {
	Isolation sandboxmcp.Isolation
	Out       string
}

// openOne is a server under the hard limits that the environment names, as
// "resource=limit …". It opens a sandbox for 4500 tasks and runs a shell there.
func openOne() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	for f := range strings.FieldsSeq(os.Getenv("SANDBOXMCP_TEST_OPEN")) {
		var which int
		var l uint64
		if n, _ := fmt.Sscanf(f, "%d=%d", &which, &l); n < 2 {
			continue
		}
		if err := syscall.Setrlimit(which, &syscall.Rlimit{Cur: l, Max: l}); err != nil {
			return fail(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b := process.New(process.Config{MinTier: sandboxmcp.TierL2})
	defer func() { _ = b.Close(context.WithoutCancel(ctx)) }()
	wide := spec("odd")
	wide.MaxTasks = 4500
	sb, err := b.Open(ctx, wide)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = sb.Close(context.WithoutCancel(ctx)) }()
	var o opened
	if o.Isolation, err = sb.Isolation(ctx); err != nil {
		return fail(err)
	}
	var out bytes.Buffer
	r, err := sb.Start(ctx, backend.Process{Argv: []string{"/bin/sh", "-c", "ulimit -n; ulimit -l; id -u"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out})
	if err == nil {
		_, err = r.Wait(ctx)
	}
	if err == nil {
		err = r.Drain(ctx)
	}
	if err != nil {
		return fail(err)
	}
	o.Out = out.String()
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		return fail(err)
	}
	return 0
}

// openIn runs openOne in a process of its own.
func openIn(t *testing.T, limits string, attr *syscall.SysProcAttr) opened {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SANDBOXMCP_TEST_OPEN=" + limits}
	cmd.SysProcAttr = attr
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the server: got %v: %s, want no error", err, errs.String())
	}
	var o opened
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("the server's output: got %v: %s, want JSON", err, out)
	}
	return o
}

// TestLowHardLimits: a server that was itself given less than a sandbox usually
// gets still opens sandboxes, and every wall of them is seen to stand.
func TestLowHardLimits(t *testing.T) {
	usual := openIn(t, "none", nil)
	for name, c := range map[string]struct {
		which, limit int
		files        int // that a program may have, at most
	}{
		"LockedMemory": {unix.RLIMIT_MEMLOCK, 64 << 10, 1024},
		"Files":        {unix.RLIMIT_NOFILE, 700, 700},
		"FewFiles":     {unix.RLIMIT_NOFILE, 300, 300},
		"Tasks":        {unix.RLIMIT_NPROC, 4000, 1024},
	} {
		t.Run(name, func(t *testing.T) {
			got := openIn(t, fmt.Sprintf("%d=%d", c.which, c.limit), nil)
			if !slices.Contains(got.Isolation.Walls, "task limit (rlimit)") {
				t.Errorf("the limit of tasks is not among the walls: %q", got.Isolation.Walls)
			}
			if got.Isolation.Tier != usual.Isolation.Tier || len(got.Isolation.Walls) != len(usual.Isolation.Walls) {
				t.Errorf("got tier %s and %d walls, want %s and %d", got.Isolation.Tier, len(got.Isolation.Walls), usual.Isolation.Tier, len(usual.Isolation.Walls))
			}
			lines := strings.Fields(got.Out)
			if len(lines) != 3 {
				t.Fatalf("the program prints %q", got.Out)
			}
			if n, err := strconv.Atoi(lines[0]); err != nil || n > c.files || n < 100 {
				t.Errorf("a program may have %s files, want 100 to %d", lines[0], c.files)
			}
		})
	}
}

// TestRootOfAUserNamespace: the root of a user namespace, as in a rootless
// container, is an ordinary user to the kernel and gets tier L2.
func TestRootOfAUserNamespace(t *testing.T) {
	testkit.User(t)
	own := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	got := openIn(t, "none", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: own(os.Geteuid()), GidMappings: own(os.Getegid())})
	if got.Isolation.Tier != sandboxmcp.TierL2 {
		t.Errorf("tier %s, want L2: %q", got.Isolation.Tier, got.Isolation.Walls)
	}
	if f := strings.Fields(got.Out); len(f) != 3 || f[2] != "1000" {
		t.Errorf("the program prints %q, want that it is user 1000", got.Out)
	}
}
