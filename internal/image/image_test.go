package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/image"
)

// fakeTool is an mmdebstrap that prints some of what the real one prints, and a tar. Its argument
// is the line that it ends with, and its exit status.
const fakeTool = `#!/bin/sh
env >"$FAKE/env"
for a in "$@"; do printf '%%s\n' "$a"; done >"$FAKE/args"
echo 'I: automatically chosen mode: root' >&2
for i in $(seq 50); do echo "Setting up package$i (1) ..." >&2; done
%s
cat "$FAKE/root.tar"
`

// order returns an order with a fake mmdebstrap.
func order(t *testing.T, script string) (o image.Order, dir string, said *[]string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("images are made on Linux")
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "mmdebstrap"), strings.ReplaceAll(strings.ReplaceAll(fakeTool, "%%", "%"), "\n%s\n", "\n"+script+"\n"), 0o755)
	write(t, filepath.Join(dir, "root.tar"), string(rootTar(t)), 0o644)
	said = &[]string{}
	return image.Order{
		Set: image.Sets()[0], Say: func(s string) { *said = append(*said, s) },
		Env: []string{"PATH=" + dir + ":/usr/bin:/bin", "TMPDIR=" + dir, "FAKE=" + dir, "SANDBOXMCP_API_KEYS=secret", "PYTHONPATH=/x", "http_proxy=http://proxy"},
	}, dir, said
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

var fileTime = time.Unix(1_700_000_000, 0)

// rootTar has the kinds of entries that a root file system has, and hostile ones.
func rootTar(t *testing.T, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range append([]tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./usr/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./usr/bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/tool", Mode: 0o4755, Size: 4},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/same", Linkname: "./usr/bin/tool"},
		{Typeflag: tar.TypeSymlink, Name: "./bin", Linkname: "usr/bin"},
		{Typeflag: tar.TypeDir, Name: "./tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeChar, Name: "./null", Mode: 0o666, Devmajor: 1, Devminor: 3},
	}, more...) {
		h.ModTime = fileTime
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// files lists what is below a directory: mode, path, and the target of links.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String() + " " + strings.TrimPrefix(path, dir)
		if to, err := os.Readlink(path); err == nil {
			line += " > " + to
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestBuildMakesATarAndADirectory(t *testing.T) {
	o, dir, said := order(t, "")
	o.Tar, o.RootFS = filepath.Join(dir, "out.tar"), filepath.Join(dir, "root")
	r, err := image.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(o.Tar)
	if err != nil || !bytes.Equal(data, rootTar(t)) || r.Bytes != int64(len(data)) {
		t.Errorf("tar: got %d bytes, %v, reported %d; want the %d bytes that mmdebstrap wrote", len(data), err, r.Bytes, len(rootTar(t)))
	}
	want := []string{
		"Lrwxrwxrwx /bin > usr/bin",
		"drwxr-xr-x /tmp", "drwxr-xr-x /usr", "drwxr-xr-x /usr/bin",
		"-rwxr-xr-x /usr/bin/same", "-rwxr-xr-x /usr/bin/tool", // nothing has the rights of another user
	}
	if diff := cmp.Diff(want, files(t, o.RootFS)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	if st, err := os.Stat(filepath.Join(o.RootFS, "usr/bin/tool")); err != nil || !st.ModTime().Equal(fileTime) {
		t.Errorf("time of a file: got %v, %v; want %v", st, err, fileTime)
	}
	if got := strings.Join(*said, "\n"); !strings.Contains(got, "50 packages installed") || !strings.Contains(got, "automatically chosen mode: root") {
		t.Errorf("progress: got %q, want the steps and the number of packages", got)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*sandboxmcp-image*"))
	parts, _ := filepath.Glob(filepath.Join(dir, "*.part-*"))
	if len(left)+len(parts) > 0 {
		t.Errorf("temporary files: got %q %q, want none", left, parts)
	}
}

func TestBuildIsReproducible(t *testing.T) {
	o, dir, _ := order(t, "")
	o.Tar = filepath.Join(dir, "out.tar")
	if _, err := image.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(env), "\n")
	for _, want := range []string{"SOURCE_DATE_EPOCH=1754697600", "PYTHONHASHSEED=0", "http_proxy=http://proxy"} {
		if !slices.Contains(lines, want) {
			t.Errorf("environment of mmdebstrap: got %q, want %s", lines, want)
		}
	}
	if strings.Contains(string(env), "secret") || strings.Contains(string(env), "PYTHONPATH") {
		t.Errorf("environment of mmdebstrap: got %q, want none of this program's variables and of Python's", lines)
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		change func(o *image.Order, dir string)
		code   sandboxmcp.Code
		text   string
	}{
		"no mmdebstrap":     {"", func(o *image.Order, _ string) { o.Env = []string{"PATH=/nonexistent"} }, sandboxmcp.CodeBackendUnavailable, "mmdebstrap"},
		"a package missing": {"echo 'E: Unable to locate package nope' >&2; exit 25", nil, sandboxmcp.CodeInstallFailed, "Unable to locate package nope"},
		"a full disk":       {"echo 'dpkg: error: cannot copy: No space left on device' >&2; exit 1", nil, sandboxmcp.CodeInstallFailed, "no space is left"},
		"a file is there":   {"", func(o *image.Order, dir string) { o.Tar = filepath.Join(dir, "mmdebstrap") }, sandboxmcp.CodeFileExists, "exists"},
		"no engine": {"", func(o *image.Order, dir string) {
			o.Tar, o.Env = "", append(o.Env, "DOCKER_HOST=unix://"+filepath.Join(dir, "none"))
		}, sandboxmcp.CodeDockerUnavailable, "no engine answers"},
		"a wrong address": {"", func(o *image.Order, _ string) { o.Tar, o.Env = "", append(o.Env, "DOCKER_HOST=nonsense") }, sandboxmcp.CodeDockerUnavailable, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			o, dir, _ := order(t, c.script)
			o.Tar = filepath.Join(dir, "out.tar")
			if c.change != nil {
				c.change(&o, dir)
			}
			_, err := image.Build(t.Context(), o)
			if got := sandboxmcp.CodeOf(err); got != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %s that says %q", err, c.code, c.text)
			}
			if sandboxmcp.AsError(err).Hint == "" {
				t.Error("got no hint, want what helps")
			}
			if _, err := os.Lstat(filepath.Join(dir, "out.tar")); err == nil {
				t.Error("got a tar, want none")
			}
		})
	}
}

// TestBuildEndsWithItsCaller: mmdebstrap is asked to end, and what it wrote is removed.
func TestBuildEndsWithItsCaller(t *testing.T) {
	o, dir, said := order(t, "trap 'echo ended >\"$FAKE/ended\"; exit 1' TERM; echo 'I: waiting' >&2; while :; do sleep 0.05; done")
	o.Tar = filepath.Join(dir, "out.tar")
	ctx, cancel := context.WithCancel(t.Context())
	o.Say = func(s string) {
		if *said = append(*said, s); s == "waiting" {
			cancel()
		}
	}
	_, err := image.Build(ctx, o)
	if got := sandboxmcp.CodeOf(err); got != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want cancelled", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("got %v, want that mmdebstrap could clean up", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "sandboxmcp-image*")); len(left) > 0 {
		t.Errorf("temporary files: got %q, want none", left)
	}
}

// TestUnpackStaysBelow: no entry of a tar leads out of the directory.
func TestUnpackStaysBelow(t *testing.T) {
	for name, hostile := range map[string][]tar.Header{
		"a path upwards": {{Typeflag: tar.TypeReg, Name: "../out", Mode: 0o644, Size: 1}},
		"through a link": {{Typeflag: tar.TypeSymlink, Name: "way", Linkname: ".."}, {Typeflag: tar.TypeReg, Name: "way/out", Mode: 0o644, Size: 1}},
		"a hard link":    {{Typeflag: tar.TypeLink, Name: "in", Linkname: "../mmdebstrap"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, dir, _ := order(t, "")
			write(t, filepath.Join(dir, "root.tar"), string(rootTar(t, hostile...)), 0o644)
			o.RootFS = filepath.Join(dir, "root")
			_, err := image.Build(t.Context(), o)
			if err == nil {
				t.Error("got no error, want one")
			}
			for _, path := range []string{filepath.Join(dir, "out"), o.RootFS} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("got %s, want nothing", path)
				}
			}
		})
	}
}

// TestDockerfileIsWhatBuildMakes: the file of the tree has the packages, user and settings of the
// set. `make generate` writes it.
func TestDockerfileIsWhatBuildMakes(t *testing.T) {
	got, err := os.ReadFile(filepath.Join("..", "..", "docker", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(image.Dockerfile(image.Sets()[0]), string(got)); diff != "" {
		t.Errorf("docker/Dockerfile (-want +got); run `make generate`:\n%s", diff)
	}
}

func TestMissingSaysTheLine(t *testing.T) {
	for name, want := range map[string]string{
		image.Name: "sandboxmcp image build", image.Compatible: "sandboxmcp image build", image.Names()[2]: "sandboxmcp image build minimal", "python:3.11-slim": "docker pull python:3.11-slim",
	} {
		err := image.Missing(name)
		if err.Code != sandboxmcp.CodeDockerError || !strings.Contains(err.Hint, want) {
			t.Errorf("%s: got %v (%s), want docker_error that says %q", name, err, err.Hint, want)
		}
	}
}
