package kernel_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// The variables of the network do not keep an interpreter from being started ahead, and
// variables of the caller win over them.
func TestNetworkVariables(t *testing.T) {
	told := map[string]string{"HTTP_PROXY": "http://127.0.0.1:312", "SSL_CERT_FILE": "/etc/a file"}
	for _, l := range []sandboxmcp.Language{sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell} {
		p, err := kernel.Plan(kernel.Program{Language: l, Code: "1", Interpreter: "/usr/bin/bash", Version: "20.1.0", Network: told, Env: map[string]string{"HTTP_PROXY": "mine"}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(p.Env, "HTTP_PROXY=mine") || !slices.Contains(p.Env, "SSL_CERT_FILE=/etc/a file") {
			t.Errorf("%s: got %q, want the caller's values kept", l, p.Env)
		}
		if l == sandboxmcp.Shell && p.Prestart != nil {
			t.Error("a shell with variables: got one that is started ahead, want none: its variables are not known then")
		}
	}
}

func TestWaitingShellWithNetwork(t *testing.T) {
	bash, err := exec.LookPath("bash")
	testkit.Need(t, "bash", err == nil, "there is no bash")
	p, err := kernel.Plan(kernel.Program{
		Language: sandboxmcp.Shell, Code: "env | grep -E 'PROXY|CERT|REPLY|BASH_ENV' | sort\necho $((SECONDS < 60))", Interpreter: bash,
		Network: map[string]string{"HTTP_PROXY": "http://127.0.0.1:312", "SSL_CERT_FILE": "/etc/$(echo no)/a  file "},
	})
	if err != nil || p.Prestart == nil {
		t.Fatal(p.Prestart, err)
	}
	dir := t.TempDir()
	for _, f := range append(p.Program, p.Prestart.Program...) {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	word, err := os.CreateTemp(dir, "word")
	if err == nil {
		_, err = word.Write(p.Prestart.Begin)
	}
	if err == nil {
		_, err = word.Seek(0, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer word.Close()
	cmd := exec.CommandContext(t.Context(), bash, filepath.Join(dir, "main.sh"))
	for _, kv := range p.Prestart.Env {
		if name, v, _ := strings.Cut(kv, "="); name == "BASH_ENV" {
			kv = name + "=" + filepath.Join(dir, filepath.Base(v))
		}
		cmd.Env = append(cmd.Env, kv)
	}
	cmd.ExtraFiles = []*os.File{word, word} // descriptor 4 has it
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err, out.String())
	}
	if want := "HTTP_PROXY=http://127.0.0.1:312\nSSL_CERT_FILE=/etc/$(echo no)/a  file \n1\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
