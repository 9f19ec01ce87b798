package process_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// smallRoot makes a root file system with sh, cat and ls of this machine, the libraries that they
// need, and a file of its own. Only its user can enter the directory above it.
func smallRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"usr/bin", "usr/share", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"sh", "cat", "ls"} {
		path, err := filepath.EvalSymlinks(filepath.Join("/bin", program))
		if err != nil {
			t.Skipf("no %s here: %v", program, err)
		}
		copyTo(t, path, filepath.Join(root, "usr/bin", program))
		out, _ := exec.CommandContext(t.Context(), "ldd", path).Output() // it fails for a program without libraries
		for _, library := range regexp.MustCompile(`/[^ ]+`).FindAllString(string(out), -1) {
			name := strings.TrimPrefix(filepath.Clean(library), "/usr")
			copyTo(t, library, filepath.Join(root, "usr", name))
		}
	}
	write(t, filepath.Join(root, "usr/share/marker"), "of the image\n")
	write(t, filepath.Join(root, "etc/os-release"), "NAME=image\n")
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	data, err := io.ReadAll(source)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func withRoot(root string) func(*process.Config) {
	return func(c *process.Config) { c.Root, c.MinTier = root, sandboxmcp.TierL2 }
}

// shell runs a script in a sandbox and returns what it printed.
func shell(t *testing.T, sb backend.Sandbox, script string) string {
	t.Helper()
	var out, errs strings.Builder
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Wait(t.Context()); err == nil {
		err = sb.Kill(t.Context())
	}
	if err == nil {
		err = r.Drain(t.Context())
	}
	if err != nil {
		t.Fatalf("run %s: got %v, want no error; stderr %s", script, err, errs.String())
	}
	return out.String()
}

// TestRootFileSystem: sandboxes see the system of a directory in place of the host's, behind the
// same walls.
func TestRootFileSystem(t *testing.T) {
	root := smallRoot(t)
	want := map[string][]string{}
	for name, change := range map[string]func(*process.Config){"the host's": withRoot(""), "an image": withRoot(root)} {
		b := newBackend(change)(t)
		t.Cleanup(func() { _ = b.Close(t.Context()) })
		sb, err := b.Open(t.Context(), spec("root"))
		if err != nil {
			t.Fatal(err)
		}
		iso, err := sb.Isolation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want[name] = iso.Walls
		if name == "the host's" {
			_ = sb.Close(t.Context())
			continue
		}
		got := shell(t, sb, `
			cat /usr/share/marker /etc/os-release
			ls /usr/bin | { while read -r f; do printf '%s ' "$f"; done; echo; }
			(echo x >/usr/share/marker) 2>/dev/null && echo written
			(echo x >/usr/new) 2>/dev/null && echo made
			cat /proc/self/mountinfo | { while read -r line; do case $line in */root/usr*|*/root/etc*) echo "shown: $line" ;; esac; done; }
			echo kept >/mnt/data/file && cat /mnt/data/file`)
		if diff := cmp.Diff("of the image\nNAME=image\ncat ls sh \nkept\n", got); diff != "" {
			t.Errorf("in a sandbox (-want +got):\n%s", diff)
		}
		_ = sb.Close(t.Context())
	}
	if diff := cmp.Diff(want["the host's"], want["an image"]); diff != "" {
		t.Errorf("walls (-host +image):\n%s", diff)
	}
}

// TestRootFileSystemHasItsInterpreters: interpreters are those of the root file system.
func TestRootFileSystemHasItsInterpreters(t *testing.T) {
	b := newBackend(withRoot(smallRoot(t)))(t)
	defer func() { _ = b.Close(t.Context()) }()
	in, err := b.Interpreter(t.Context(), sandboxmcp.Shell)
	if err != nil || in.Path != "/usr/bin/sh" || len(in.Trees) > 0 {
		t.Errorf("shell: got %+v, %v; want /usr/bin/sh without trees", in, err)
	}
	if _, err := b.Interpreter(t.Context(), sandboxmcp.Python); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRuntimeUnavailable {
		t.Errorf("python: got %v, want runtime_unavailable", err)
	}
}

// TestRootFileSystemFailsClosed: a root file system that cannot be shown as it is meant is refused,
// and the host's is never shown in its place.
func TestRootFileSystemFailsClosed(t *testing.T) {
	escaping := smallRoot(t)
	if err := os.RemoveAll(filepath.Join(escaping, "etc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(escaping, "etc")); err != nil {
		t.Fatal(err)
	}
	linked := smallRoot(t)
	if err := os.RemoveAll(filepath.Join(linked, "usr")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(linked, "usr")); err != nil {
		t.Fatal(err)
	}
	plain := func(c *process.Config) {
		process.WithoutNamespaces(c)
		c.Root, c.MinTier = smallRoot(t), sandboxmcp.TierL1
	}
	for name, c := range map[string]struct {
		change func(*process.Config)
		code   sandboxmcp.Code
	}{
		"a directory that leads out": {withRoot(escaping), sandboxmcp.CodeIsolationUnavailable},
		"usr that leads out":         {withRoot(linked), sandboxmcp.CodeIsolationUnavailable},
		"an empty directory":         {withRoot(t.TempDir()), sandboxmcp.CodeInvalidArgument},
		"the host's root":            {withRoot("/"), sandboxmcp.CodeInvalidArgument},
		"no namespaces":              {plain, sandboxmcp.CodeIsolationUnavailable},
	} {
		b := newBackend(c.change)(t)
		sb, err := b.Open(t.Context(), spec("refused"))
		if err == nil {
			_ = sb.Close(t.Context())
		}
		if got := sandboxmcp.CodeOf(err); got != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
		_ = b.Close(t.Context())
	}
}

// TestCertificatesOfARootFileSystem: programs trust the authorities of the root file system.
func TestCertificatesOfARootFileSystem(t *testing.T) {
	root := smallRoot(t)
	certs := filepath.Join(root, "etc/ssl/certs")
	if err := os.MkdirAll(certs, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(certs, "ca-certificates.crt"), "CERTIFICATE-----\n")
	b := newBackend(withRoot(root))(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("certificates"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	if got, want := shell(t, sb, "cat /etc/ssl/certs/ca-certificates.crt; ls /etc/ssl"), "CERTIFICATE-----\ncerts\n"; got != want {
		t.Errorf("certificates: got %q, want %q, and none of the host's", got, want)
	}
}
