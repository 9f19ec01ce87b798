package packages

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPipConfiguration: files and variables count as they do for pip.
func TestPipConfiguration(t *testing.T) {
	dir := t.TempDir()
	global := put(t, dir, "xdg/pip/pip.conf", "[global]\nindex-url = https://global.test/simple/\ntrusted-host = x y:8080\n")
	user := "[global]\nindex_url: https://user.test/simple\nextra-index-url =\n    https://me:pw@one.test/a/\n    https://two.test/b\n\n# no\n[install]\n--find-links = /wheels file:///more relative\n[list]\nindex-url = https://no.test\n"
	put(t, dir, "home/.config/pip/pip.conf", user)
	home := filepath.Join(dir, "home")
	base := map[string]string{"XDG_CONFIG_DIRS": filepath.Dir(filepath.Dir(global))}
	for name, c := range map[string]struct {
		env  map[string]string
		home string
		want []string
	}{
		"Default": {map[string]string{"PIP_CONFIG_FILE": "/dev/null"}, home, []string{"https://pypi.org/simple"}},
		"Global":  {nil, "", []string{"https://global.test/simple"}},
		"User":    {nil, home, []string{"https://one.test/a", "https://two.test/b", "https://user.test/simple", "/wheels", "/more"}},
		"Env":     {map[string]string{"PIP_INDEX_URL": "https://env.test/s", "PIP_EXTRA_INDEX_URL": "https://e.test/s"}, home, []string{"https://e.test/s", "https://env.test/s", "/wheels", "/more"}},
		"NoIndex": {map[string]string{"PIP_NO_INDEX": "1"}, home, []string{"/wheels", "/more"}},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{}
			for _, m := range []map[string]string{base, c.env} {
				maps.Copy(env, m)
			}
			got, err := readClient(sandboxmcp.Python, env, c.home, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.names()); diff != "" {
				t.Error(diff)
			}
		})
	}
	c, err := readClient(sandboxmcp.Python, base, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.trusted(); err != nil || !got["x:443"] || !got["x:80"] || !got["y:8080"] || got["y:443"] || !got["global.test:443"] || len(got) != 4 {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = readClient(sandboxmcp.Python, map[string]string{"PIP_INDEX_URL": "ftp://user:pw@x/y"}, "", "")
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInstallFailed {
		t.Errorf("got %v", err)
	}
}

// TestNpmConfiguration: files and variables count as they do for npm.
func TestNpmConfiguration(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "home/.npmrc", "; c\nregistry=https://user.test/npm/\n@corp:registry = \"https://corp.test/\"\n@b:registry=https://b.test\n@a:registry=https://a.test\n//corp.test/:_authToken=${TOKEN}\n//user.test/npm/:username=me\n//user.test/npm/:_password=cHc=\ncafile=/ca.pem\n")
	home := filepath.Join(dir, "home")
	env := map[string]string{"TOKEN": "tok", "npm_config_globalconfig": "/dev/null", "NO_PROXY": "*"}
	c, err := readClient(sandboxmcp.Node, env, home, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"https://user.test/npm", "@a=https://a.test", "@b=https://b.test", "@corp=https://corp.test"}, c.names()); diff != "" {
		t.Error(diff)
	}
	if got := c.registry("@corp/x").url.Host; got != "corp.test" {
		t.Errorf("got %s", got)
	}
	if !slices.Contains(c.bundles, "/ca.pem") {
		t.Errorf("bundles: got %v", c.bundles)
	}
	for text, want := range map[string]string{
		"https://corp.test/@corp%2fx": "Bearer tok", "https://user.test/npm/x": "Basic bWU6cHc=", "https://user.test/other/x": "", "https://user.test/npmx": "", "https://corp.test.evil.test/x": "",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.header(u); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	env["npm_config_registry"] = "https://env.test"
	if c, err = readClient(sandboxmcp.Node, env, home, ""); err != nil || c.indexes[0].url.Host != "env.test" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestNetrc(t *testing.T) {
	home := t.TempDir()
	put(t, home, ".netrc", "machine index.test login me password pw\ndefault login no password no\n")
	c, err := readClient(sandboxmcp.Python, map[string]string{"PIP_INDEX_URL": "https://index.test:8443/simple"}, home, "")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"https://index.test:8443/simple/x/": "Basic bWU6cHc=", "https://other.test/": ""} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.header(u); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestLoginsAreForTheirPort: a document may name files on other ports of the index's host, which may
// be those of another user.
func TestLoginsAreForTheirPort(t *testing.T) {
	for _, c := range []struct {
		lang sandboxmcp.Language
		env  map[string]string
	}{
		{sandboxmcp.Python, map[string]string{"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "https://me:pw@index.test/simple"}},
		{sandboxmcp.Node, map[string]string{"npm_config_//index.test/:_authToken": "token", "npm_config_registry": "https://index.test/"}},
	} {
		got, err := readClient(c.lang, c.env, "", "")
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{"https://index.test/simple/x/": true, "https://index.test:8443/simple/x/": false, "https://index.test.evil.test/": false} {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if h := got.header(u); (h != "") != want {
				t.Errorf("%s: got the login %q, want one: %t", text, h, want)
			}
		}
	}
}

// TestProxies: a host that only a proxy reaches is asked if it is an index, and not if a
// document names it.
func TestProxies(t *testing.T) {
	c, err := readClient(sandboxmcp.Python, map[string]string{"PIP_CONFIG_FILE": "/dev/null", "HTTPS_PROXY": "http://10.0.0.1:3128", "NO_PROXY": "direct.test"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(c, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !n.trusted["10.0.0.1:3128"] || !n.trusted["pypi.org:443"] || !n.trusted["files.pythonhosted.org:443"] || n.trusted["direct.test:443"] {
		t.Errorf("got %v", n.trusted)
	}
	for text, want := range map[string]bool{"https://pypi.org/x": true, "https://files.pythonhosted.org/x": true, "https://direct.test/x": true, "https://other.test/x": false, "http://direct.test/x": false, "https://pypi.org:444/x": false} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.permit(u); (err == nil) != want {
			t.Errorf("%s: got %v, want %v", text, err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{"https://A.test/x": "a.test:443", "http://a.test.:81": "a.test:81", "http://[::1]/": "[::1]:80", "socks5://p": "p:1080"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := address(u); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestOneEdit(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"abc", "abd", true}, {"abc", "abcd", true}, {"abcd", "abc", true}, {"abc", "acb", true}, {"abc", "abc", false}, {"abc", "cba", false}, {"a", "abc", false}, {"ab", "ba", true}, {"", "a", true}} {
		if got := oneEdit(c.a, c.b); got != c.want {
			t.Errorf("%s %s: got %v", c.a, c.b, got)
		}
	}
}

func TestModulePaths(t *testing.T) {
	for path, want := range map[string]string{
		"node_modules/a": "a", "node_modules/@s/a": "@s/a", "node_modules/a/node_modules/b": "b", "node_modules/": "", "a": "", "node_modules/a/b": "", "node_modules/../a": "", "node_modules/a/node_modules/": "",
		"node_modules/a/": "", "/node_modules/a": "", "node_modules/.bin": "", "node_modules/a/node_modules/@s/b": "@s/b",
	} {
		if got, ok := modulePath(path); got != want && ok || ok != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", path, got, ok, want)
		}
	}
}

func TestLicenses(t *testing.T) {
	for want, head := range map[string]map[string][]string{
		"MIT OR BSD":  {"License-Expression": {"MIT OR BSD"}, "License": {"other"}},
		"BSD":         {"License": {"BSD"}, "Classifier": {"License :: OSI Approved :: MIT License"}},
		"MIT License": {"License": {strings.Repeat("long text ", 20)}, "Classifier": {"Topic :: x", "License :: OSI Approved :: MIT License"}},
		"Free":        {"License": {"UNKNOWN"}, "Classifier": {"License :: Free"}},
		"":            {"License": {strings.Repeat("long text ", 20)}},
	} {
		if got := licenseOf(head); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
