package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// writeKey writes a private key as openssl does.
func writeKey(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestChecksumsAreSigned: the command of SECURITY.md accepts the signature, and nothing else.
func TestChecksumsAreSigned(t *testing.T) {
	_, err := exec.LookPath("openssl")
	testkit.Need(t, "openssl", err == nil, "openssl is missing")
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	r := packed(t, target{"windows", "amd64"})
	if r.key, err = readKey(writeKey(t, private)); err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(r.sign(), os.WriteFile(filepath.Join(r.out, "sandboxmcp.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var command string
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "openssl pkeyutl -verify") {
			command = line
		}
	}
	verify := func() (string, error) {
		sh := exec.CommandContext(t.Context(), "sh", "-c", command)
		sh.Dir = r.out
		out, err := sh.CombinedOutput()
		return string(out), err
	}
	if out, err := verify(); err != nil || !strings.Contains(out, "Verified Successfully") || !strings.Contains(out, ".zip: OK") {
		t.Errorf("%q: got %v\n%s, want it verified", command, err, out)
	}
	sums := filepath.Join(r.out, sumsFile)
	if err = os.WriteFile(sums, append(contents(t, sums), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(); err == nil || strings.Contains(out, ": OK") {
		t.Errorf("changed checksums: got %s, want them refused before any file is checked", out)
	}
}

// TestOtherKeysDoNotSign: a key of another kind is refused, with the command that makes one.
func TestOtherKeysDoNotSign(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err = os.WriteFile(text, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{writeKey(t, other), text} {
		if _, err = readKey(file); err == nil || !strings.Contains(err.Error(), "openssl genpkey") {
			t.Errorf("%s: got %v, want a refusal with the command", file, err)
		}
	}
	if _, err = readKey(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file: got a key, want an error")
	}
}

// find returns a program that may be in a directory of the administrator only, or among the clients.
func find(name string) string {
	clients, err := filepath.Abs("../../.tools/clients/node_modules/.bin/" + name)
	if err != nil {
		return ""
	}
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name, clients} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return ""
}

// TestAppArmorParsesTheProfile with its own parser. One that is older than user namespaces gets the
// profile without the two lines about them: the package installs it for newer ones only.
func TestAppArmorParsesTheProfile(t *testing.T) {
	parser := find("apparmor_parser")
	testkit.Need(t, "apparmor", parser != "", "apparmor_parser is missing")
	profile, err := files.ReadFile("files/sandboxmcp.apparmor")
	if err != nil {
		t.Fatal(err)
	}
	text := string(profile)
	if _, err := os.Stat("/etc/apparmor.d/abi/4.0"); err != nil {
		text = strings.NewReplacer("abi <abi/4.0>,\n", "", "  userns,\n", "").Replace(text)
	}
	parse := func(text string) (string, error) {
		file := filepath.Join(t.TempDir(), "sandboxmcp")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), parser, "-QTK", file).CombinedOutput()
		return string(out), err
	}
	if out, err := parse(text); err != nil {
		t.Errorf("got %v\n%s", err, out)
	}
	if out, err := parse(text + "no rule\n"); err == nil {
		t.Errorf("a profile with a fault: got %s, want it refused", out)
	}
}

// TestOfficialToolsAcceptTheBundle: the validator of MCP bundles, if it is installed, accepts the
// manifest.
func TestOfficialToolsAcceptTheBundle(t *testing.T) {
	mcpb := find("mcpb")
	testkit.Need(t, "mcpb", mcpb != "", "mcpb is missing; scripts/clients.sh installs it")
	r := packed(t, target{"linux", "amd64"})
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), mcpb, "unpack", r.file(r.targets[0], ".mcpb"), dir).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), mcpb, "validate", filepath.Join(dir, "manifest.json")).CombinedOutput(); err != nil {
		t.Errorf("validate: %v\n%s", err, out)
	}
}

// TestTheProgramForArm64Starts: compiled as for a release, it says its version and its platform, and
// serves MCP. An emulator runs it on other machines. That knows no Landlock, so the program refuses
// to run code.
func TestTheProgramForArm64Starts(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program and all libraries for another processor")
	}
	var command []string
	if runtime.GOARCH != "arm64" {
		emulator := cmp.Or(find("qemu-aarch64"), find("qemu-aarch64-static"))
		testkit.Need(t, "qemu", emulator != "", "qemu-aarch64 is missing; scripts/setup.sh evidence installs it")
		command = append(command, emulator)
	}
	_, err := exec.LookPath("go")
	testkit.Need(t, "qemu", err == nil, "there is no Go to compile with")
	r := &release{root: "../..", version: "1.2.3", when: time.Unix(1_700_000_000, 0).UTC(), log: io.Discard}
	dir := t.TempDir()
	p, err := r.compile(t.Context(), target{"linux", "arm64"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	command = append(command, file)
	call := func(in string, args ...string) (string, error) {
		args = append(command[1:len(command):len(command)], args...)
		cmd := exec.CommandContext(t.Context(), command[0], args...)
		cmd.Stdin, cmd.Env = strings.NewReader(in), append(os.Environ(), "HOME="+dir, "SANDBOXMCP_STATE_DIR="+filepath.Join(dir, "state"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := call("", "version"); err != nil || !strings.Contains(out, "1.2.3") || !strings.Contains(out, "linux/arm64") {
		t.Errorf("got %v and %s, want the version 1.2.3 on linux/arm64", err, out)
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"
	if out, err := call(hello, "serve"); err != nil || !strings.Contains(out, `"serverInfo"`) {
		t.Errorf("serve: got %v and %s, want an answer to initialize", err, out)
	}
	out, err := call("", "run", "-l", "shell", "-c", "echo $((6 * 7))")
	if emulated := runtime.GOARCH != "arm64"; emulated && (err == nil || !strings.Contains(out, "isolation_unavailable")) || !emulated && (err != nil || out != "42\n") {
		t.Errorf("run: got %v and %s, want 42, or isolation_unavailable under an emulator", err, out)
	}
}

// TestTheRegistryAcceptsTheEntry: server.json fits the schema of the MCP registry, as its Go module
// has it, if that is in the module cache.
func TestTheRegistryAcceptsTheEntry(t *testing.T) {
	out, _ := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output() // without Go there is no module cache
	found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "github.com/modelcontextprotocol/registry@*/internal/validators/schemas/*.json"))
	testkit.Need(t, "mcpmodule", err == nil && len(found) > 0, "the module of the MCP registry is not in the module cache; go mod download github.com/modelcontextprotocol/registry@latest brings it")
	var schema jsonschema.Schema
	r := packed(t, target{"linux", "amd64"}, target{"linux", "arm64"})
	var entry map[string]any
	if err = json.Unmarshal(contents(t, filepath.Join(r.out, "server.json")), &entry); err != nil {
		t.Fatal(err)
	}
	file := found[len(found)-1] // of the newest module
	named, _ := entry["$schema"].(string)
	file = filepath.Join(filepath.Dir(file), path.Base(path.Dir(named))+".json")
	if err = json.Unmarshal(contents(t, file), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = resolved.Validate(entry); err != nil {
		t.Errorf("got %v, want the entry to fit", err)
	}
	entry["description"] = strings.Repeat("x", 101)
	if err = resolved.Validate(entry); err == nil {
		t.Error("a description of 101 characters: got it accepted, want the schema to be read")
	}
}
