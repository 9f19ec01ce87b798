package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// block is a fenced block of a document.
type block struct {
	info string // what follows the fence: "sh", "sh registry", "json", …
	line int    // of its first line of text
	text string
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// blocksOf returns the fenced blocks of a document.
func blocksOf(t *testing.T, path string) []block {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		all = append(all, block{
			info: string(text[at[2]:at[3]]), text: string(text[at[4]:at[5]]),
			line: 1 + bytes.Count(text[:at[4]], []byte("\n")),
		})
	}
	return all
}

// documents returns the pages that persons write, by their names in the tree.
func documents(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 5 {
		t.Fatalf("got the pages %v and %v, want at least 5", pages, err)
	}
	return append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "SECURITY.md"))
}

var (
	prints   = regexp.MustCompile(`(?m)^(\S.*?)\s+# prints (.+)$`)
	invoked  = regexp.MustCompile(`^sandboxmcp( |$)`)
	trailing = regexp.MustCompile(`\s+(#|[|<>]).*$`)
)

// TestDocumentsRun runs each block of the documents that is marked "sh", in a directory and a
// state directory of the page. "# prints TEXT" after a command says what its output contains.
// Blocks marked "sh registry" run where SANDBOXMCP_MUST_RUN has the word registry, and those
// marked "sh postgres" in scripts/postgres-test.sh.
func TestDocumentsRun(t *testing.T) {
	testkit.Need(t, "userns", canRun(), "doctor says that no sandbox can be built")
	ran := 0
	for _, page := range documents(t) {
		var script strings.Builder
		for _, b := range blocksOf(t, page) {
			if b.info == "sh postgres" && storetest.Postgres() {
				fmt.Fprintf(&script, "export SANDBOXMCP_DATABASE_URL=%s\n%s\nunset SANDBOXMCP_DATABASE_URL\n", quoted(storetest.URL(t.TempDir())), checked(b.text))
			}
			if b.info == "sh" || b.info == "sh registry" && testkit.Demanded("registry") {
				fmt.Fprintf(&script, "echo '-- line %d' >&2\n%s", b.line, checked(b.text))
			}
		}
		if script.Len() == 0 {
			continue
		}
		ran++
		t.Run(filepath.Base(page), func(t *testing.T) { runDocument(t, script.String()) })
	}
	if ran < 3 {
		t.Fatalf("%d documents have blocks that run, want at least 3", ran)
	}
}

// checked is the text of a block that fails where a command does not print its mark.
func checked(text string) string {
	return prints.ReplaceAllStringFunc(text, func(line string) string {
		m := prints.FindStringSubmatch(line)
		return fmt.Sprintf("out=$(%s); echo \"$out\"; grep -qF -- %s <<<\"$out\" || { echo \"want: \"%s >&2; exit 1; }", m[1], quoted(m[2]), quoted(m[2]))
	})
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// place is a directory with a home and a state directory, in which commands of a page run.
type place struct {
	dir string
	env []string
}

func newPlace(t *testing.T) place {
	t.Helper()
	dir, err := os.MkdirTemp("", "doc") //nolint:usetesting // sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a server that was ended may write its last file meanwhile
		testkit.Until(t, "the place of the commands is removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	for _, sub := range []string{"home", "work"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := place{dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/home", "SANDBOXMCP_STATE_DIR=" + dir + "/state", "LANG=C.UTF-8", "TMPDIR=" + dir}}
	for _, name := range os.Environ() {
		if strings.HasPrefix(name, "PIP_") || strings.HasPrefix(name, "SSL_CERT_") {
			p.env = append(p.env, name)
		}
	}
	return p
}

func (p place) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = p.dir+"/work", p.env
	return cmd
}

func runDocument(t *testing.T, script string) {
	t.Helper()
	p := newPlace(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	defer stopServers(t, p)
	out, err := p.command(ctx, "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
	if err != nil {
		t.Errorf("the page's commands ended with %v; their output:\n%s", err, out)
	}
}

// stopServers ends what commands of a place have started in the background.
func stopServers(t *testing.T, p place) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	list, err := p.command(ctx, "sandboxmcp", "server", "list", "--json").Output()
	var servers struct {
		Servers []struct {
			ID string `json:"id"`
		} `json:"servers"`
	}
	if err != nil || json.Unmarshal(list, &servers) != nil {
		t.Errorf("server list: got %v and %s, want a list", err, list)
	}
	for _, s := range servers.Servers {
		if out, err := p.command(ctx, "sandboxmcp", "server", "stop", s.ID).CombinedOutput(); err != nil {
			t.Errorf("server stop %s: %v: %s", s.ID, err, out)
		}
	}
}

// TestDocumentsNameCommands parses every line of the other blocks that begins with the program's
// name: the command and its flags exist.
func TestDocumentsNameCommands(t *testing.T) {
	seen := 0
	for _, page := range documents(t) {
		for _, b := range blocksOf(t, page) {
			if strings.HasPrefix(b.info, "sh") { // TestDocumentsRun runs it
				continue
			}
			for n, line := range strings.Split(b.text, "\n") {
				line = trailing.ReplaceAllString(strings.TrimPrefix(line, "$ "), "")
				if !invoked.MatchString(line) || strings.ContainsAny(line, "[…") || strings.HasSuffix(line, `\`) {
					continue
				}
				seen++
				script := `sandboxmcp() { if [ "$1" = help ]; then command sandboxmcp help; else command sandboxmcp "$@" --help; fi; }; ` + strings.ReplaceAll(line, " -- ", " ")
				cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
				cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s:%d: %s: %v: %s", filepath.Base(page), b.line+n, line, err, firstLine(out))
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("got %d commands, want at least 50", seen)
	}
}

// TestReadmeRuns runs the commands of the README's blocks, in their order. Those that need the network of
// the world, a person or a client of another maker run in the form that the table has.
func TestReadmeRuns(t *testing.T) {
	testkit.Need(t, "userns", canRun(), "doctor says that no sandbox can be built")
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	const parsed = "sandboxmcp %s --help >/dev/null" // TestDocumentsNameCommands does the same
	planned := "make -n -C " + root + " %s >/dev/null"
	port := freePort(t)
	instead := map[string]string{
		// It would build the program and run all tests, or write into the system.
		"make demo":    fmt.Sprintf(planned, "demo"),
		"make install": fmt.Sprintf(planned, "install"),
		"make test":    fmt.Sprintf(planned, "test"),
		// The client is installed by make test-clients alone; it runs the command behind its own.
		"claude mcp add sandboxmcp -- sandboxmcp serve":                        "sandboxmcp serve </dev/null",
		"gemini mcp add sandboxmcp sandboxmcp serve":                           "sandboxmcp serve </dev/null",
		"claude mcp add --transport http sandboxmcp http://127.0.0.1:8080/mcp": "",
		"sandboxmcp serve --transport http --port 8080":                        servesHTTP(port),
		"sandboxmcp vault add API_TOKEN":                                       "echo a-long-secret | sandboxmcp vault add API_TOKEN -",
		"sandboxmcp events --follow":                                           "sandboxmcp events --follow >/dev/null & kill $!; wait $! || true",
		"sandboxmcp web fetch https://example.com":                             fmt.Sprintf(parsed, "web fetch https://example.com"),
	}
	if !testkit.Demanded("registry") {
		instead["sandboxmcp install python requests"] = fmt.Sprintf(parsed, "install python requests")
		instead["sandboxmcp setup science"] = fmt.Sprintf(parsed, "setup science")
	}
	var text strings.Builder
	for _, b := range blocksOf(t, filepath.Join(root, "README.md")) {
		if b.info == "" {
			text.WriteString(b.text)
		}
	}
	script := "printf 'import sys\\nopen(\"out.txt\", \"w\").write(\"x\")\\n' > report.py; printf 'a,b\\n1,2\\n' > sales.csv\n"
	n := 0
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSuffix(line, "\n")
		want := ""
		if m := prints.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], " ") { // not a sentence
			want = m[2]
		}
		command := strings.TrimSpace(regexp.MustCompile(`\s+# .*$`).ReplaceAllString(line, ""))
		if other, there := instead[command]; there {
			delete(instead, command)
			command = cmp.Or(other, ":")
		}
		n++
		script += "echo " + quoted("-- "+line) + " >&2\nout=$(" + command + ")\n"
		if want != "" {
			script += "grep -qF -- " + quoted(want) + ` <<<"$out" || { echo "got: $out" >&2; exit 1; }` + "\n"
		}
	}
	script += "test -f results/out.txt\n"
	if n < 25 || len(instead) > 0 {
		t.Errorf("got %d commands, and none like %v, want at least 25 and those", n, slices.Sorted(maps.Keys(instead)))
	}
	runDocument(t, script)
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// TestTroubleshootingHasEveryCode: docs/troubleshooting.md has a section for every error code.
func TestTroubleshootingHasEveryCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, heading := range regexp.MustCompile("(?m)^## .*$").FindAllString(string(text), -1) {
		for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(heading, -1) {
			named[code[1]] = true
		}
	}
	for _, row := range sandboxmcp.CodeRows() {
		if !named[string(row.Code)] {
			t.Errorf("docs/troubleshooting.md has no heading with %s", row.Code)
		}
		delete(named, string(row.Code))
	}
	if len(named) > 0 {
		t.Errorf("docs/troubleshooting.md has headings of codes that do not exist: %v", slices.Sorted(maps.Keys(named)))
	}
}
