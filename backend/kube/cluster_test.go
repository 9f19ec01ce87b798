package kube_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/kube"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// logTo writes a log to a test.
type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// newKube returns the backend of the cluster that KUBECONFIG_E2E names. KUBE_IMAGE is the image of pods.
func newKube(t testing.TB, change ...func(*kube.Config)) *kube.Backend {
	t.Helper()
	config := os.Getenv("KUBECONFIG_E2E")
	testkit.Need(t, "kube", config != "", "KUBECONFIG_E2E names no cluster")
	namespace, image := os.Getenv("KUBE_NAMESPACE"), os.Getenv("KUBE_IMAGE")
	if namespace == "" {
		namespace = "sandboxes"
	}
	if image == "" {
		image = "docker.io/sandboxmcp/sandbox:kube"
	}
	cfg := kube.Config{Kubeconfig: config, Namespace: namespace, Image: image, Connect: kube.ConnectPod}
	if os.Getenv("KUBE_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, f := range change {
		f(&cfg)
	}
	b := kube.New(cfg)
	t.Cleanup(func() {
		if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func spec(id string) backend.Spec {
	return backend.Spec{ID: id, MinTier: sandboxmcp.TierL1, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 64, CPUTime: time.Minute, WorkBytes: 32 << 20, WorkInodes: 2000, TempBytes: 16 << 20}
}

func open(t testing.TB, b backend.Backend, s backend.Spec) backend.Sandbox {
	t.Helper()
	sb, err := b.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close(context.WithoutCancel(t.Context())) })
	return sb
}

// output runs a shell script and returns what it printed.
func output(t testing.TB, sb backend.Sandbox, script string) string {
	t.Helper()
	var out, errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e != (backend.Exit{}) {
		t.Fatalf("%q: got %+v %s", script, e, errs.String())
	}
	return out.String()
}

// TestPodRunsPrograms: a program runs in a pod of the restricted profile, and the walls that are reported were
// observed.
func TestPodRunsPrograms(t *testing.T) {
	b := newKube(t)
	s := spec("runs")
	if os.Getenv("KUBE_POLICY") == "" {
		s.MinTier = sandboxmcp.TierL0
	}
	sb := open(t, b, s)
	got := output(t, sb, "pwd; ls /run; touch /x 2>/dev/null || echo read-only; touch /run/program/x 2>/dev/null || echo kept; echo 1 2>/dev/null >/dev/termination-log || echo shut; echo data > file; cat file")
	if want := "/mnt/data\nbridge\nprogram\nrelay\nread-only\nkept\nshut\ndata\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	iso, err := sb.Isolation(t.Context())
	t.Logf("%+v %v", iso, err)
	u, err := sb.Usage(t.Context())
	t.Logf("%+v %v", u, err)
}

// TestConformance runs the suite in pods.
func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Options{
		New:    func(t testing.TB) backend.Backend { t.Helper(); return newKube(t) },
		Python: "/usr/bin/python3", Node: "/usr/bin/node", Bash: "/bin/bash", Curl: "/usr/bin/curl",
		Tier: sandboxmcp.TierL1, HeldLimits: true, LeastTasks: 1, Closed: "ECONNREFUSED", Differ: differ, Lacks: lacks,
	})
}

var differ = map[string]string{}

var lacks = map[string]string{}
