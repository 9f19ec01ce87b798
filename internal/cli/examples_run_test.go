package cli_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// examplesOf returns the examples of all commands, which docs/cli.md and the manual pages have too.
func examplesOf(c *cobra.Command) (all []string) {
	for line := range strings.Lines(c.Example) {
		line = regexp.MustCompile(`\s{3,}.*$`).ReplaceAllString(strings.TrimSpace(line), "") // a remark
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	for _, sub := range c.Commands() {
		for _, line := range examplesOf(sub) {
			if !sub.Hidden && !slices.Contains(all, line) {
				all = append(all, line)
			}
		}
	}
	return all
}

// elsewhere matches examples that need the network of the world, a container engine or minutes, and
// those of a system in another directory. TestEveryCommandExplainsItself parses them. Other tests run
// these commands with an index, an engine and a network of their own.
var elsewhere = regexp.MustCompile(`sandboxmcp (?:web |image |setup science|demo --science|install |run --package)|SANDBOXMCP_ROOTFS`)

// endless matches examples of programs that run until they are ended.
var endless = regexp.MustCompile(`--follow|sandboxmcp serve.* (?:--transport|--unix)`)

// answers has the error with which an example ends, because it names a resource that does not exist.
var answers = map[string]string{
	"sandboxmcp artifacts 0f8c9f0e-6d0b-4f0e-9d3b-1a2b3c4d5e6f --out results":                      "request_not_found",
	"sandboxmcp audit verify --checkpoints /mnt/elsewhere/checkpoints --json":                      "checkpoints",
	"sandboxmcp cancel 0f8c9f0e-6d0b-4f0e-9d3b-1a2b3c4d5e6f":                                       "request_not_found",
	"sandboxmcp egress approve ID --once":                                                          "invalid_argument",
	"sandboxmcp egress approve apr_3x7k":                                                           "request_not_found",
	"sandboxmcp egress approve apr_3x7k --once":                                                    "request_not_found",
	"sandboxmcp egress deny apr_3x7k":                                                              "request_not_found",
	"sandboxmcp host access approve apr_3x7k":                                                      "request_not_found",
	"sandboxmcp host access approve apr_3x7k --once":                                               "request_not_found",
	"sandboxmcp host access deny apr_3x7k":                                                         "request_not_found",
	"sandboxmcp packages approve apr_3x7k":                                                         "request_not_found",
	"sandboxmcp packages approve apr_3x7k --once":                                                  "request_not_found",
	"sandboxmcp packages deny apr_3x7k":                                                            "request_not_found",
	"sandboxmcp packages remove pandas":                                                            "not_found",
	"sandboxmcp server stop 4711-0a1b2c3d":                                                         "not_found",
	"sandboxmcp setup remove science":                                                              "not_found",
	"sandboxmcp vault add API_KEY":                                                                 "invalid_argument", // there is no terminal
	"sandboxmcp verify chart.png 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": "MISMATCH",
}

// examplePlace is a place with the files, directories and the server that the examples name.
func examplePlace(t *testing.T) place {
	t.Helper()
	p := newPlace(t)
	for _, dir := range []string{"srv", "home/project", "home/.local/share/bash-completion/completions"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"work/hello.py": "print('hello')", "work/report.py": "print(1)", "work/plot.py": "open('plot.png', 'w').write('x')", "work/data.csv": "a,b\n", "work/sales.csv": "a\n1\n",
		"work/settings.yaml": "timeout_seconds: 9\n", "work/rows.json": "[1]", "work/key.txt": "a-long-secret", "work/deploy.sh": "echo hi", "work/chart.png": "x",
		"srv/notes.txt": "notes", "srv/sales.csv": "a\n1\n",
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const history = `cd home/project && git init -q && git -c user.name=name -c user.email=name@example.com commit -q --allow-empty -m first`
	if _, err := exec.LookPath("git"); err == nil {
		c := p.command(t.Context(), "bash", "-c", history)
		c.Dir = p.dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	p.env = append(p.env, "SANDBOXMCP_HOST_ACCESS=true", "SANDBOXMCP_HOST_ROOTS="+p.dir+"/srv,"+p.dir+"/home/project", "SANDBOXMCP_PACKAGES=ask")
	return p
}

// TestExamplesRun runs the examples of all commands, as their help and docs/cli.md have them. Each
// ends with 0, or with the error that answers has for it.
func TestExamplesRun(t *testing.T) {
	testkit.Need(t, "userns", canRun(), "doctor says that no sandbox can be built")
	p := examplePlace(t)
	defer stopServers(t, p)
	open, ran := maps.Clone(answers), 0
	for _, line := range examplesOf(cli.Commands()) {
		if elsewhere.MatchString(line) {
			continue
		}
		want := open[line]
		delete(open, line)
		ran++
		if strings.Contains(line, "analysis") { // the session that it names, as it expects it
			before := "sandboxmcp session create --id analysis; sandboxmcp files upload analysis sales.csv; cp plot.py plot.png; sandboxmcp files upload analysis plot.png"
			switch {
			case strings.HasPrefix(line, "sandboxmcp session create"):
				before = "sandboxmcp session kill analysis"
			case strings.HasPrefix(line, "sandboxmcp files upload"):
				before = "sandboxmcp session create --id analysis; sandboxmcp files rm analysis /mnt/data/sales.csv"
			case strings.HasSuffix(line, "'x + 1'"):
				before = "sandboxmcp session create --id analysis; sandboxmcp run --session analysis -c 'x = 5'"
			}
			_ = p.command(t.Context(), "bash", "-c", before).Run()
		}
		if got := p.runExample(t, line); got != "" && (want == "" || !strings.Contains(got, want)) || got == "" && want != "" {
			t.Errorf("%s: got %q, want the error %q", line, got, want)
		}
	}
	if ran < 90 || len(open) > 0 {
		t.Errorf("got %d examples, and none like %v, want at least 90 and those", ran, slices.Sorted(maps.Keys(open)))
	}
}

// runExample runs an example. It returns "" on success, else the output.
func (p place) runExample(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text := strings.ReplaceAll(line, "/srv/data", p.dir+"/srv")
	switch {
	case endless.MatchString(line):
		text = strings.ReplaceAll(text, " --port 8080", " --port "+strconv.Itoa(freePort(t)))
		text = "timeout --foreground 0.5 env " + text + " >/dev/null; test $? = 124" // it did not end by itself
	case strings.Contains(line, "host exec 'git"): // there may be no git
		text += "; test $? = 0 -o $? = 127"
	case strings.HasPrefix(line, "sandboxmcp host access revoke"):
		text = "sandboxmcp host access approve 'git fetch origin' >/dev/null; " + text
	case strings.HasPrefix(line, "sandboxmcp packages revoke"):
		text = "sandboxmcp packages approve python:requests >/dev/null; " + text
	}
	out, err := p.command(ctx, "bash", "-o", "pipefail", "-c", text).CombinedOutput()
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatalf("%s: %v", line, err)
	}
	return err.Error() + ": " + string(out)
}

// TestUploadNamesItsFlag: a file that is there already is told with the flag of the command.
func TestUploadNamesItsFlag(t *testing.T) {
	testkit.Need(t, "userns", canRun(), "doctor says that no sandbox can be built")
	p := examplePlace(t)
	defer stopServers(t, p)
	const text = "sandboxmcp session create --id twice && sandboxmcp files upload twice sales.csv && sandboxmcp files upload twice sales.csv"
	if got := p.runExample(t, text); !strings.Contains(got, "file_exists") || !strings.Contains(got, "--overwrite") {
		t.Errorf("got %q, want file_exists and the flag --overwrite", got)
	}
}
