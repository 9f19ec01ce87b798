package runtimes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestWhoCanChangeAPython: an interpreter is as trusted as what it loads.
func TestWhoCanChangeAPython(t *testing.T) {
	testkit.Root(t)                                       // nobody else makes what root alone can write
	root, err := os.MkdirTemp("/run", "sandboxmcp-test-") //nolint:usetesting // everybody can write above that one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	in := Interpreter{Language: sandboxmcp.Python, Path: filepath.Join(root, "bin/python3.12"), Version: "3.12.1"}
	for _, dir := range []string{"bin", "lib/python3.12/lib-dynload", "lib/python3.12/site-packages", "lib/python3/dist-packages", "local/lib/python3.12/dist-packages"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in.Path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if !(trust{}).trusted([]string{root}) {
		t.Skipf("%s is not root's alone", root)
	}
	check := func(what string, preload, site bool) {
		t.Helper()
		if in.judge(); in.TrustedForPreload != preload || in.TrustedSite != site {
			t.Errorf("%s: trusted %v, with its packages %v; want %v, %v", what, in.TrustedForPreload, in.TrustedSite, preload, site)
		}
	}
	check("root's alone", true, true)
	for dir, preload := range map[string]bool{
		"bin": false, "bin/python3.12": false, "lib": false, "lib/python3.12": false, "lib/python3.12/lib-dynload": false,
		"lib/python3.12/site-packages": true, "lib/python3/dist-packages": true, "local/lib/python3.12": true, "local/lib/python3.12/dist-packages": true,
	} {
		p := filepath.Join(root, dir)
		_ = os.Chmod(p, 0o777)
		check(dir+" is everybody's", preload, false)
		_ = os.Chmod(p, 0o755)
		_ = os.Chown(p, 0, 4711)
		_ = os.Chmod(p, 0o775)
		check(dir+" is a group's", preload, false)
		_ = os.Chown(p, 4711, 0)
		_ = os.Chmod(p, 0o755)
		check(dir+" is another user's", preload, false)
		_ = os.Chown(p, 0, 0)
		check("after "+dir, true, true)
	}
	in.Version = "3.13"
	check("without packages of its own", true, true) // lib/python3 is there
}
