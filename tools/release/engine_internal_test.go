package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// interpreters is an image of the engine that has a root file system like that of a release. The
// tests of `sandboxmcp image build` make it.
const interpreters = "sandboxmcp/sandbox:minimal"

// TestEngineRunsTheImage: a container engine loads the image of a release. The commands of
// docs/docker.md start the server in it, which runs code. Without their options it starts, and says
// which options are missing.
func TestEngineRunsTheImage(t *testing.T) {
	have := os.Getenv("DOCKER_HOST") != "" && exec.CommandContext(t.Context(), "docker", "image", "inspect", interpreters).Run() == nil
	testkit.Need(t, "docker", have, "no container engine with the image "+interpreters+"; scripts/engine-test.sh starts one")
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	r := &release{root: "../..", out: t.TempDir(), version: "1.2.3", when: time.Unix(1_700_000_000, 0).UTC(), log: io.Discard, bases: map[string]string{}}
	this := target{"linux", runtime.GOARCH}
	made := docker("create", "--network", "none", interpreters, "true")
	r.bases[this.arch] = filepath.Join(t.TempDir(), "base.tar")
	docker("export", "-o", r.bases[this.arch], made)
	docker("rm", made)
	p, err := r.compile(t.Context(), this, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err = r.image(this, p); err != nil {
		t.Fatal(err)
	}
	if got, want := docker("load", "-i", r.file(this, ".oci.tar")), "Loaded image: sandboxmcp:1.2.3"; !strings.Contains(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "docker", "rmi", "--force", "sandboxmcp:1.2.3").Run()
	})

	calls := commandsOf(t)
	if len(calls) != 2 {
		t.Fatalf("got the commands %q in docs/docker.md, want 2", calls)
	}
	for _, call := range calls {
		if got := answerOf(t, call); got["stdout"] != "42\n" {
			t.Errorf("%s: got %v, want 42", call, got)
		}
	}
	got := answerOf(t, "docker run -i --rm sandboxmcp:1.2.3")
	hint := fmt.Sprint(got["hint"])
	if got["error"] != "isolation_unavailable" || !strings.Contains(hint, "seccomp=unconfined") || !strings.Contains(hint, "systempaths=unconfined") {
		t.Errorf("without options: got %v, want isolation_unavailable and the options", got)
	}
}

// commandsOf returns the commands of docs/docker.md that start the server, of the version 1.2.3.
func commandsOf(t *testing.T) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/docker.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "docker run -i") {
			all = append(all, strings.ReplaceAll(strings.TrimSpace(line), "VERSION", "1.2.3"))
		}
	}
	return all
}

// answerOf starts a server by a shell command, in a new directory with a directory state. It returns
// the answer to a run that prints 42. The container has no network: the engine of the
// tests has none to give.
func answerOf(t *testing.T, command string) (answer map[string]any) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "docker run", "docker run --network none", 1))
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(in, strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(6 * 7)"}}}`,
	}, "\n")+"\n")
	var hello, text string
	if lines := bufio.NewReader(out); err == nil {
		hello, _ = lines.ReadString('\n')
		text, err = lines.ReadString('\n')
	}
	_ = in.Close() // the server ends
	if failed := cmd.Wait(); err != nil || failed != nil || !strings.Contains(hello, `"serverInfo"`) {
		t.Fatalf("%s: got %v, %v, %s, %s and %s, want two answers", command, err, failed, hello, text, said.String())
	}
	var last struct {
		Result struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	if err = json.Unmarshal([]byte(text), &last); err == nil && len(last.Result.Content) > 0 {
		err = json.Unmarshal([]byte(last.Result.Content[0].Text), &answer)
	}
	if err != nil || answer == nil {
		t.Fatalf("%s: got %v in %s", command, err, text)
	}
	return answer
}
