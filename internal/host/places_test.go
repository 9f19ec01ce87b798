package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

// TestClosedPlacesAreClosedUnderOtherNames: a file system that ignores case shows a file at many paths. A hard link is another path of a
// file on each file system.
func TestClosedPlacesAreClosedUnderOtherNames(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(settings, []byte("CANARY"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Own = append(c.Own, settings) })
	other := filepath.Join(b.root, "SETTINGS.yaml")
	if err := os.Link(settings, other); err != nil {
		t.Fatal(err)
	}
	b.wantOutput("cat "+b.file("beside", "open"), "open")
	b.wantRefused("cat "+other, sandboxmcp.CodeHostPathDenied)
}

// TestOwnFilesThatAreLinks: a mounted secret is a link, which leads to another file once the secret is renewed. The server still uses the first
// one.
func TestOwnFilesThatAreLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	link := func(to string) {
		t.Helper()
		_ = os.Remove("key")
		if err := os.Symlink(to, "key"); err != nil {
			t.Fatal(err)
		}
	}
	link("root/first")
	b := open(t, func(c *host.Config) {
		if err := os.Symlink(c.Roots[0], "root"); err != nil {
			t.Fatal(err)
		}
		c.Own, c.Allowed = append(c.Own, "key"), append(c.Allowed, "grep")
		if err := os.WriteFile(filepath.Join(c.Roots[0], "first"), []byte("key of the server\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	second := b.file("second", "key of the server\n")
	link("root/second")
	for _, path := range []string{filepath.Join(b.root, "first"), second} {
		b.wantRefused("cat "+path, sandboxmcp.CodeHostPathDenied)
		_, err := b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: path}, noMasks{})
		wantCode(t, "read "+path, err, sandboxmcp.CodeHostPathDenied)
	}
	out, err := b.exec("grep -r key " + b.root)
	if strings.Contains(strings.Join(out.Walls, " "), "landlock") && (err != nil || strings.Contains(out.Stdout, "of the server")) {
		t.Errorf("grep: got %q, %v, want nothing of the keys", out.Stdout, err)
	}
}

// TestStartedDirectoriesThatAreLinks: the PATH or the path of a rule's program often has a link to the newest version of an application, which leads to another
// directory once there is a newer one.
func TestStartedDirectoriesThatAreLinks(t *testing.T) {
	dir := t.TempDir()
	path, rule := filepath.Join(dir, "path"), filepath.Join(dir, "rule")
	var root string
	turn := func(version string) {
		t.Helper()
		_ = errors.Join(os.Remove(path), os.Remove(rule))
		for link, to := range map[string]string{path: "path" + version, rule: "rule" + version} {
			to = filepath.Join(root, to)
			if err := errors.Join(os.Mkdir(to, 0o755), os.WriteFile(filepath.Join(to, "program"), []byte("#!/bin/sh\n"), 0o755), os.Symlink(to, link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := open(t, func(c *host.Config) {
		root = c.Roots[0]
		turn("1")
		c.Started, c.Allowed = []string{path}, append(c.Allowed, filepath.Join(rule, "program"))
	})
	turn("2")
	for file, want := range map[string]sandboxmcp.Code{
		"path1/new": sandboxmcp.CodeHostPathDenied, "path2/new": sandboxmcp.CodeHostPathDenied, "rule1/program": sandboxmcp.CodeHostPathDenied, "rule2/program": sandboxmcp.CodeHostPathDenied, "rule2/new": "",
	} {
		_, err := b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: filepath.Join(b.root, file), Content: "x", Overwrite: true}, noMasks{})
		wantCode(t, file, err, want)
	}
}
