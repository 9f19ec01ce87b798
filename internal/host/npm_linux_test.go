package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestNpmPrintsNoFileThatItsDirectoryNames: npm warns of the keys in a file of settings that it does not know, and each line of
// a file is such a key. A .npmrc that a program in a sandbox has written may name any file as one of settings.
func TestNpmPrintsNoFileThatItsDirectoryNames(t *testing.T) {
	_, err := exec.LookPath("/usr/bin/npm")
	testkit.Need(t, "npm", err == nil, "npm")
	b := open(t, func(c *host.Config) { c.Allowed = []string{"npm list"} })
	hidden := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(hidden, []byte("HIDDEN_KEY_OF_ANOTHER\nloglevel=HIDDEN_VALUE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.file(".npmrc", "globalconfig="+hidden+"\nuserconfig="+hidden+"\nloglevel=silly\n")
	b.file("package.json", `{"name":"mine","version":"1.0.0"}`)
	out, err := b.exec("npm list")
	if err != nil || !out.Success || !strings.Contains(out.Stdout, "mine@1.0.0") {
		t.Errorf("got %+v, %v, want a list", out, err)
	}
	if strings.Contains(out.Stdout+out.Stderr, "HIDDEN") {
		t.Errorf("got %q, want nothing of a file that .npmrc names", out.Stderr)
	}
}

// TestNpmPrintsNoLinesOfItsDirectory: npm warns of lines of .npmrc, which can be a link to a key that is beside it.
func TestNpmPrintsNoLinesOfItsDirectory(t *testing.T) {
	_, err := exec.LookPath("/usr/bin/npm")
	testkit.Need(t, "npm", err == nil, "npm")
	b := open(t, func(c *host.Config) { c.Allowed = []string{"npm list"} })
	b.file("package.json", `{"name":"mine","version":"1.0.0"}`)
	b.file("server.key", "loglevel=silly\nHIDDENLINEOFAKEY\n")
	if err = os.Symlink("server.key", filepath.Join(b.root, ".npmrc")); err != nil {
		t.Fatal(err)
	}
	out, err := b.exec("npm list")
	if err != nil || !out.Success || !strings.Contains(out.Stdout, "mine@1.0.0") || strings.Contains(out.Stdout+out.Stderr, "HIDDEN") {
		t.Errorf("got %+v, %v, want a list, and nothing of .npmrc", out, err)
	}
}

// TestNpmReadsNoSecretsOfItsProject: npm prints what is in a package.json, which can be a link to a file of keys in the project. The same
// holds if the project has too many files for all names to be looked at.
func TestNpmReadsNoSecretsOfItsProject(t *testing.T) {
	_, err := exec.LookPath("/usr/bin/npm")
	testkit.Need(t, "npm", err == nil, "npm")
	for _, many := range []int{0, 1001} {
		b := open(t, func(c *host.Config) { c.Allowed = []string{"npm list"} })
		b.file("package.json", `{"name":"mine","version":"1.0.0","dependencies":{"x":"*","y":"*"}}`)
		b.file("conf/credentials.json", `{"name":"x","version":"2.0.0","private":"HIDDEN"}`)
		b.file("node_modules/y/package.json", `{"name":"y","version":"3.0.0","said":"shown"}`)
		b.file("node_modules/x/index.js", "")
		for i := range many {
			b.file("more/"+strconv.Itoa(i)+".pem", "")
		}
		if err = os.Symlink("../../conf/credentials.json", filepath.Join(b.root, "node_modules/x/package.json")); err != nil {
			t.Fatal(err)
		}
		out, failed := b.exec("npm list --json --long --all")
		if failed != nil || !strings.Contains(out.Stdout, "shown") || strings.Contains(out.Stdout+out.Stderr, "HIDDEN") {
			t.Errorf("with %d keys: got %+v, %v, want what is in node_modules, and nothing of keys", many, out, failed)
		}
	}
}

// TestNpmPrintsNothingOfItsSettings: npm prints the begin of a package.json that is no JSON, and it can be a link to .npmrc.
func TestNpmPrintsNothingOfItsSettings(t *testing.T) {
	_, err := exec.LookPath("/usr/bin/npm")
	testkit.Need(t, "npm", err == nil, "npm")
	b := open(t, func(c *host.Config) { c.Allowed = []string{"npm list"} })
	b.file("package.json", `{"name":"mine","version":"1.0.0","workspaces":["parts/*"]}`)
	b.file("parts/p/x", "")
	b.file(".npmrc", "//registry.example/:_authToken=HIDDEN\n")
	if err = os.Symlink("../../.npmrc", filepath.Join(b.root, "parts/p/package.json")); err != nil {
		t.Fatal(err)
	}
	out, err := b.exec("npm list --json")
	if err != nil || strings.Contains(out.Stdout+out.Stderr, "HIDDEN") {
		t.Errorf("got %+v, %v, want nothing of .npmrc", out, err)
	}
}

// TestOldNpmLoadsNothingOfItsDirectory: before version 7, .npmrc could name a file of code. Later versions warn of the variable that
// comes before it.
func TestOldNpmLoadsNothingOfItsDirectory(t *testing.T) {
	const first = "NPM_CONFIG_ONLOAD_SCRIPT=null"
	for about, want := range map[string]bool{
		`{"name":"npm","version":"6.14.18"}`: true, `{"name":"npm","version":"7.0.0"}`: false, `{"name":"npm","version":"11.1.0"}`: false,
		`{"name":"npm","version":"?"}`: true, `{"name":"npm"}`: true, `{"name":"other","version":"6.0.0"}`: false, `[`: false,
	} {
		b := open(t)
		npm := b.tool("npm/bin/npm-cli.js", "#!/bin/sh\nset\n")
		b.file("npm/package.json", about)
		b.allow(npm)
		out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Argv: []string{npm}}, noMasks{})
		got := slices.Contains(strings.Split(strings.ReplaceAll(out.Stdout, "'", ""), "\n"), first)
		if err != nil || !out.Success || got != want {
			t.Errorf("%s: got %v, %+v, %v, want %v", about, got, out, err, want)
		}
	}
}
