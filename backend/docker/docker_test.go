package docker_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// logTo writes a backend's log to the test's.
type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) { l.t.Logf("%s", p); return len(p), nil }

// engineHost returns the engine of DOCKER_HOST. It has to have one of image.Names.
func engineHost(t testing.TB) string {
	t.Helper()
	host := os.Getenv("DOCKER_HOST")
	testkit.Need(t, "docker", host != "" && os.Geteuid() == 0, "DOCKER_HOST is not set, or this is not root")
	return host
}

func newBackend(t testing.TB, change ...func(*docker.Config)) *docker.Backend {
	t.Helper()
	log := slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := docker.Config{Process: process.Config{Logger: log, TempDir: t.TempDir()}, Host: engineHost(t), Dir: t.TempDir(), Logger: log}
	for _, f := range change {
		f(&cfg)
	}
	return docker.New(cfg)
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Options{
		New:    func(t testing.TB) backend.Backend { t.Helper(); return newBackend(t) },
		Python: "/usr/bin/python3", Node: "/usr/bin/node", Bash: "/bin/bash", Curl: "/usr/bin/curl",
		Tier: sandboxmcp.TierL2, HeldLimits: true, LeastTasks: 16, Differ: differ,
	})
}

// differ lists what attacks meet in a container and not in a jail.
var differ = map[string]string{
	// The image's own files are seen, not this machine's. The image has /home, /root and no shadow;
	// /sys is there and empty.
	"a01-read-host.py shadow": "ENOENT", "a01-read-host.py home": "[]", "a01-read-host.py etc": "*", "a01-read-host.py sys": "[]",
	"a03-dotdot.py fchdir": "the host",
	// The mount table has rows of control groups. An empty, read-only directory covers them.
	"a12-release-agent.sh mounts": "cgroup",
	// /dev/tty is there. Without a terminal it cannot be opened, and sandboxes have none.
	"a13-devices.py tty": "ENXIO",
	// Every container has device nodes of its own.
	"a13-devices.py touched": "ok",
	// The engine's own filter ends a process that uses the x32 table.
	"a17-foreign-tables.py x32": "killed SIGSYS",
	// Without CAP_SETPCAP init cannot lock the secure bits; no capability is left that they would
	// concern, and none can be gained. The engine has no user namespaces for containers.
	"a24-status.py securebits": "0", "a24-status.py maps": "['         0          0 4294967295', '']",
	// The user id is one of this machine that no other process has. The group is repeated in the list
	// of groups. The other writable mounts belong to the container's root, and Landlock refuses
	// writes to them.
	"a24-view.py ids": "*", "a24-view.py groups": "*", "a24-view.py own-namespaces": "6", "a24-view.py users": "*",
	"a24-view.py writable":         "/dev /dev/shm /mnt/data /proc/interrupts /proc/kallsyms /proc/key-users /proc/keys /proc/locks /proc/timer_list /run /sys/fs/cgroup /tmp",
	"a24-view.py writable-devices": "mqueue pts", "a24-view.py unknown-mounts": "*",
	"a24-view.py devices": "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero",
	// The engine shows /proc/sys, read-only, and masks only whole directories.
	"a43-switches.py kernel": "the kernel's", "a43-switches.py shown": "the kernel's",
	// Every container sees the directory of its own init, which is read-only.
	"b01-other-files.py siblings": "['.sandboxmcp']",
}

// spec describes a sandbox of usual size.
func spec(id string) backend.Spec {
	return backend.Spec{ID: id, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 64, WorkBytes: 32 << 20, WorkInodes: 1000, TempBytes: 16 << 20}
}

func open(t *testing.T, b backend.Backend, s backend.Spec) backend.Sandbox {
	t.Helper()
	sb, err := b.Open(t.Context(), s)
	if err != nil {
		t.Fatalf("%v (%s)", err, sandboxmcp.AsError(err).Hint)
	}
	t.Cleanup(func() { _ = sb.Close(context.WithoutCancel(t.Context())) })
	return sb
}

// output runs a shell script in a sandbox.
func output(t *testing.T, sb backend.Sandbox, script string) string {
	t.Helper()
	return backendtest.Output(t, sb, "/bin/sh", "-c", script)
}

// TestContainerIsTheImage: programs see the image, as its ordinary user, and nothing of this machine.
func TestContainerIsTheImage(t *testing.T) {
	b := newBackend(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb := open(t, b, spec("image"))
	if got := output(t, sb, "pwd; ls /run; cat /proc/1/comm; touch /x 2>/dev/null || echo read-only"); got != "/mnt/data\nbridge\nprogram\ninit\nread-only\n" {
		t.Errorf("got %q", got)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", iso)
	t.Log(output(t, sb, "cat /proc/self/mountinfo"))
	rows, err := b.Interpreters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", rows)
}
