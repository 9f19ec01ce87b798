package process_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// TestMain lets the test binary be the server that a test kills.
func TestMain(m *testing.M) {
	if os.Getenv("SANDBOXMCP_TEST_SERVER") != "" {
		os.Exit(serve())
	}
	if os.Getenv("SANDBOXMCP_TEST_OPEN") != "" {
		os.Exit(openOne())
	}
	os.Exit(m.Run())
}

// interpreter finds a program that every sandbox sees.
func interpreter(names ...string) string {
	for _, n := range names {
		for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/bin"} {
			if p, err := filepath.EvalSymlinks(filepath.Join(dir, n)); err == nil {
				return p
			}
		}
	}
	return ""
}

func python() string { return interpreter("python3") }

func newBackend(change ...func(*process.Config)) func(testing.TB) backend.Backend {
	return func(t testing.TB) backend.Backend {
		t.Helper()
		cfg := process.Config{MinTier: sandboxmcp.TierL1, TempDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		for _, f := range change {
			f(&cfg)
		}
		if err := os.Chmod(cfg.TempDir, 0o711); err != nil {
			t.Fatal(err)
		}
		// the temporary directory of a test lies below one that only its user may enter
		if err := os.Chmod(filepath.Dir(cfg.TempDir), 0o711); err != nil {
			t.Fatal(err)
		}
		return process.New(cfg)
	}
}

// logTo writes a backend's log to the test's.
type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) { l.t.Logf("%s", p); return len(p), nil }

// options are what the process backend has to reach as this user.
func options(t testing.TB) backendtest.Options {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the process backend needs Linux")
	}
	o := backendtest.Options{
		New: newBackend(), Python: python(), Node: interpreter("node"), Bash: interpreter("bash"), Curl: interpreter("curl"), Static: static(), Tier: sandboxmcp.TierL2,
	}
	if tree, err := cgroup.Open(cgroup.Config{}); err == nil {
		_ = tree.Close()
		o.HeldLimits = true
		if os.Geteuid() == 0 {
			o.Tier = sandboxmcp.TierL3
		}
	} else {
		t.Logf("no control groups: %v", err)
	}
	return o
}

func TestConformance(t *testing.T) { backendtest.Run(t, options(t)) }

// TestConformanceWithoutCgroup is what a machine without control groups gives.
func TestConformanceWithoutCgroup(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformance of an ordinary user shows the same")
	}
	o := options(t)
	o.New, o.Tier, o.HeldLimits = newBackend(process.WithoutCgroup), sandboxmcp.TierL2, false
	backendtest.Run(t, o)
}

// TestConformancePlain is what a machine without user namespaces gives.
func TestConformancePlain(t *testing.T) {
	o := options(t)
	o.New, o.Tier = newBackend(process.WithoutNamespaces), sandboxmcp.TierL1
	backendtest.Run(t, o)
}

// noClaims is a backend whose sandboxes claim no walls, as that of a newcomer may.
type noClaims struct{ backend.Backend }

func withoutWalls(iso sandboxmcp.Isolation) sandboxmcp.Isolation {
	iso.Tier, iso.Walls, iso.Weak, iso.PolicySHA256 = sandboxmcp.TierL0, []string{}, []string{"everything"}, ""
	return iso
}

func (b noClaims) Capabilities(ctx context.Context) backend.Capabilities {
	c := b.Backend.Capabilities(ctx)
	return backend.Capabilities{Available: c.Available, Reason: c.Reason, Isolation: withoutWalls(c.Isolation)}
}

func (b noClaims) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	if spec.MinTier.AtLeast(sandboxmcp.TierL1) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "there are no walls")
	}
	spec.MinTier = sandboxmcp.TierL1
	sb, err := b.Backend.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	return noClaimsSandbox{sb}, nil
}

type noClaimsSandbox struct{ backend.Sandbox }

func (s noClaimsSandbox) Isolation(ctx context.Context) (sandboxmcp.Isolation, error) {
	iso, err := s.Sandbox.Isolation(ctx)
	return withoutWalls(iso), err
}

// TestConformanceWithoutClaims: what a backend does not claim is skipped, and the rest of
// the suite is run.
func TestConformanceWithoutClaims(t *testing.T) {
	o := options(t)
	o.New, o.Tier, o.HeldLimits = func(t testing.TB) backend.Backend {
		t.Helper()
		// Nothing is kept for later sandboxes, because the suite cannot ask for its release.
		return noClaims{newBackend(process.WithoutNamespaces, noPool)(t)}
	}, sandboxmcp.TierL0, false
	backendtest.Run(t, o)
}

func TestChurn(t *testing.T) { backendtest.Churn(t, options(t)) }

// serve is a server with hostile programs in four sandboxes. It says "ready" and waits for its death.
func serve() int {
	ctx := context.Background()
	marker := os.Getenv("SANDBOXMCP_TEST_SERVER")
	program, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 2
	}
	cfg := process.Config{MinTier: sandboxmcp.TierL1, TempDir: os.Getenv("SANDBOXMCP_TEST_TEMP")}
	if os.Getenv("SANDBOXMCP_TEST_PLAIN") != "" {
		process.WithoutNamespaces(&cfg)
	}
	b := process.New(cfg)
	if os.Getenv("SANDBOXMCP_TEST_FORK") != "" {
		return serveForks(ctx, b)
	}
	for i := range 4 {
		sb, err := b.Open(ctx, backend.Spec{ID: fmt.Sprintf("dying%d", i), MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 64, WorkBytes: 1 << 20, WorkInodes: 100, TempBytes: 1 << 20})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if n, ok := sb.(backend.Networker); ok && os.Getenv("SANDBOXMCP_TEST_PLAIN") == "" {
			if _, err := n.Network(ctx, []int{5432}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
		}
		r, w, _ := os.Pipe()
		_, err = sb.Start(ctx, backend.Process{
			Argv: []string{python(), backend.ProgramDir + "/main.py", marker}, Env: []string{"PATH=/usr/bin:/bin"},
			Program: []backend.ProgramFile{{Name: "main.py", Data: program}}, Stdout: w, Stderr: os.Stderr,
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if line, _ := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
			return 2
		}
		if os.Getenv("SANDBOXMCP_TEST_FROZEN") != "" && b.Capabilities(ctx).Freeze {
			if err := sb.Freeze(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
		}
	}
	fmt.Println("ready")
	select {}
}
