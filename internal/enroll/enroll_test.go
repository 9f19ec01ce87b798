package enroll_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/enroll"
)

var entry = enroll.Entry{Command: "/opt/bin/sandboxmcp", Args: []string{"serve"}, Env: map[string]string{"SANDBOXMCP_STATE_DIR": "/srv/state"}}

func client(t *testing.T, name string) enroll.Client {
	t.Helper()
	c, ok := enroll.Find(name)
	if !ok {
		t.Fatalf("client %s is not known", name)
	}
	return c
}

// decode reads a document of either format.
func decode(t *testing.T, name, text string) map[string]any {
	t.Helper()
	doc := map[string]any{}
	switch {
	case strings.TrimSpace(text) == "":
		return doc
	case name == "codex":
		if err := toml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		return doc
	}
	plain, err := hujson.Standardize([]byte(strings.TrimPrefix(text, "\ufeff")))
	if err == nil && len(plain) > 0 {
		err = json.Unmarshal(plain, &doc)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return doc
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files are configuration files in the forms that clients and persons write.
var files = map[string]map[string]string{
	"claude": {
		"a busy one":    `{"numStartups":7,"projects":{"/w":{"history":[{"display":"a < b"}],"mcpServers":{"sandboxmcp":{"command":"x"}}}},"big":12345678901234567890,"mcpServers":{"memory":{"type":"stdio","command":"m","args":[],"env":{}}}}`,
		"no servers":    "{\n  \"numStartups\": 7\n}\n",
		"empty":         "",
		"an old entry":  "{\n  \"mcpServers\": {\n    \"sandboxmcp\": {\n      \"type\": \"stdio\",\n      \"command\": \"/old\",\n      \"args\": [\"serve\", \"--config\", \"x\"],\n      \"env\": {\"SANDBOXMCP_TIMEOUT\": \"9\"},\n      \"timeout\": 5\n    },\n    \"other\": {\"command\": \"o\"}\n  }\n}\n",
		"empty servers": "{\"mcpServers\": {}}",
	},
	"claude-desktop": {
		"tabs":         "{\n\t\"mcpServers\": {\n\t\t\"files\": {\"command\": \"npx\", \"args\": [\"-y\", \"files\"]}\n\t},\n\t\"globalShortcut\": \"\"\n}",
		"mark, CR, LF": "\ufeff{\r\n  \"mcpServers\": {\r\n    \"files\": {\r\n      \"command\": \"C:\\\\files.exe\"\r\n    }\r\n  }\r\n}\r\n",
	},
	"cursor": {"plain": "{\n  \"mcpServers\": {\n    \"web\": { \"url\": \"http://127.0.0.1:1/mcp\" }\n  }\n}\n"},
	"gemini": {"comments": "// mine\n{\n  /* look */ \"theme\": \"GitHub\", // dark\n  \"mcpServers\": {\n    // notes\n    \"notes\": { \"command\": \"n\" } // last\n    // end\n  },\n  \"security\": { \"folderTrust\": { \"enabled\": false } },\n}\n// end of file\n"},
	"vscode": {
		"trailing commas": "{\n    \"servers\": {\n        \"git\": {\n            \"type\": \"stdio\",\n            \"command\": \"g\",\n        }, // git\n    },\n    \"inputs\": [ { \"id\": \"k\", \"type\": \"promptString\" }, ],\n}\n",
		"only a comment":  "{\n    // servers come here\n}\n",
	},
	"codex": {
		"comments":      "# mine\nmodel = \"o\" # fast\napproval_policy = 'never'\n\n[mcp_servers.docs] # the docs\ncommand = \"d\"\nargs = [\n  \"-y\", # yes\n  \"docs\",\n]\n\n# profiles below\n[profiles.fast]\nmodel = \"x\"\n",
		"an old entry":  "[mcp_servers.sandboxmcp]\ncommand = \"/old\"\nargs = [\"serve\"]\nstartup_timeout_sec = 20\n[mcp_servers.sandboxmcp.env]\nSANDBOXMCP_TIMEOUT = \"9\"\n\n# other\n[mcp_servers.other]\ncommand = \"o\"\ntext = \"\"\"\n# no comment\n[no.table]\n\"\"\"\nwhen = 2026-01-02T03:04:05Z\n",
		"quoted":        "[\"mcp_servers\".\"sandboxmcp\"]\ncommand = \"/old\"\n\n[tui]\ntheme = \"t\"\n",
		"no newline":    "model = \"o\"",
		"empty":         "",
		"table of them": "[mcp_servers]\nother = { command = \"o\" }\n",
	},
}

func servers(name string, doc map[string]any) map[string]any {
	key := map[string]string{"codex": "mcp_servers", "vscode": "servers"}[name]
	if key == "" {
		key = "mcpServers"
	}
	all, _ := doc[key].(map[string]any)
	return all
}

// rest returns a document without the entry; a table of servers that is empty counts as none.
func rest(name string, doc map[string]any) map[string]any {
	all := servers(name, doc)
	delete(all, "sandboxmcp")
	if len(all) == 0 {
		for _, k := range []string{"mcp_servers", "servers", "mcpServers"} {
			if v, ok := doc[k].(map[string]any); ok && len(v) == 0 {
				delete(doc, k)
			}
		}
	}
	return doc
}

// TestNothingElseOfAFileChanges enters the server in files of each client, twice, and takes it
// out: all else is there afterwards, comments too.
func TestNothingElseOfAFileChanges(t *testing.T) {
	for name, texts := range files {
		for title, text := range texts {
			t.Run(name+"/"+title, func(t *testing.T) {
				c, file := client(t, name), write(t, text)
				if changed, err := c.Install(file, "sandboxmcp", entry); err != nil || !changed {
					t.Fatalf("install: got %v, %v, want a change", changed, err)
				}
				once := read(t, file)
				got := decode(t, name, once)
				one, _ := servers(name, got)["sandboxmcp"].(map[string]any)
				env, _ := one["env"].(map[string]any)
				if one["command"] != entry.Command || !reflect.DeepEqual(one["args"], []any{"serve"}) || env["SANDBOXMCP_STATE_DIR"] != "/srv/state" {
					t.Errorf("entry: got %v, want that of %+v", one, entry)
				}
				if strings.Contains(text, "/old\"\nargs") || strings.Contains(text, "timeout\": 5") {
					if env["SANDBOXMCP_TIMEOUT"] != "9" || one["timeout"] == nil && one["startup_timeout_sec"] == nil {
						t.Errorf("entry: got %v, want its old fields too", one)
					}
				}
				if typed := one["type"] == "stdio"; typed != slices.Contains([]string{"claude", "cursor", "vscode"}, name) {
					t.Errorf("type: got %v", one["type"])
				}
				if want := rest(name, decode(t, name, text)); !reflect.DeepEqual(rest(name, got), want) {
					t.Errorf("the rest: got %v, want %v", got, want)
				}
				comments(t, text, once)
				if changed, err := c.Install(file, "sandboxmcp", entry); err != nil || changed || read(t, file) != once {
					t.Errorf("install again: got %v, %v and\n%s\nwant no change of\n%s", changed, err, read(t, file), once)
				}
				if changed, err := c.Remove(file, "sandboxmcp"); err != nil || !changed {
					t.Errorf("remove: got %v, %v, want a change", changed, err)
				}
				bare := read(t, file)
				if now, want := rest(name, decode(t, name, bare)), rest(name, decode(t, name, text)); !reflect.DeepEqual(now, want) {
					t.Errorf("after remove: got %v, want %v", now, want)
				}
				comments(t, text, bare)
				if changed, err := c.Remove(file, "sandboxmcp"); err != nil || changed || read(t, file) != bare {
					t.Errorf("remove again: got %v, %v, want no change", changed, err)
				}
				if strict := json.Valid([]byte(text)); strict && !json.Valid([]byte(once)) {
					t.Errorf("a file of plain JSON is none any more:\n%s", once)
				}
			})
		}
	}
}

// comments fails if a comment of a text is not in another.
func comments(t *testing.T, text, in string) {
	t.Helper()
	for line := range strings.Lines(text) {
		for _, mark := range []string{"// ", "# ", "/* "} {
			if i := strings.Index(line, mark); i >= 0 && !strings.Contains(in, strings.TrimSpace(line[i:])) {
				t.Errorf("the comment %q is lost in\n%s", strings.TrimSpace(line[i:]), in)
			}
		}
	}
}

// TestLinesOfOthersStay: of a file in lines, each line is there afterwards, in its order.
func TestLinesOfOthersStay(t *testing.T) {
	for _, f := range []struct{ name, title string }{{"claude-desktop", "tabs"}, {"cursor", "plain"}, {"codex", "comments"}, {"vscode", "trailing commas"}} {
		text := files[f.name][f.title]
		file := write(t, text)
		if _, err := client(t, f.name).Install(file, "sandboxmcp", entry); err != nil {
			t.Fatal(err)
		}
		at, now := 0, strings.Split(read(t, file), "\n")
		for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
			i := slices.IndexFunc(now[at:], func(s string) bool { return strings.TrimSuffix(s, ",") == strings.TrimSuffix(line, ",") })
			if i < 0 {
				t.Errorf("%s: line %q is lost in\n%s", f.name, line, strings.Join(now, "\n"))
				break
			}
			at += i + 1
		}
	}
}

// TestBrokenFilesAreRefusedWithTheirPlace: nothing is written, and the place is told.
func TestBrokenFilesAreRefusedWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name, text   string
		line, column int // 0: no place
		want         string
	}{
		{"claude", "{\n  \"a\": 1\n  \"b\": 2\n}\n", 3, 3, ":3:3: "},
		{"claude", "{\"a\": 1", 1, 8, ":1:8: "},
		{"claude", "[1]", 1, 1, "has to be an object"},
		{"claude", "{\"mcpServers\": [1]}", 1, 16, "mcpServers has to be an object"},
		{"claude", "{\"mcpServers\": {\"sandboxmcp\": 5}}", 1, 31, "the entry sandboxmcp has to be an object"},
		{"claude", "{\"mcpServers\": {},\n\"mcpServers\": {}}", 2, 1, "mcpServers is there twice"},
		{"claude", "{\"mcpServers\": {\"sandboxmcp\": {},\n \"sandboxmcp\": {}}}", 2, 2, "sandboxmcp is there twice"},
		{"gemini", "{\"mcpServers\": {\"sandboxmcp\": {\"httpUrl\": \"http://127.0.0.1:1\"}}}", 1, 31, "a server with a URL"},
		{"gemini", "{ /* open", 1, 0, "unexpected EOF"},
		{"vscode", "\x00", 1, 1, "invalid character"},
		{"codex", "model = \n", 1, 0, ":1:"},
		{"codex", "a = 1\na = 2\n", 2, 0, ":2:"},
		{"codex", "mcp_servers = 5\n", 0, 0, "mcp_servers has to be a table"},
		{"codex", "mcp_servers.sandboxmcp = 5\n", 0, 0, "has to be a table"},
		{"codex", "mcp_servers = { other = { command = \"o\" } }\n", 0, 0, "cannot be edited"},
		{"codex", "[mcp_servers]\nsandboxmcp.command = \"/old\"\n", 0, 0, "cannot be edited"},
		{"codex", "[mcp_servers.sandboxmcp]\nurl = \"http://127.0.0.1:1\"\n", 0, 0, "a server with a URL"},
	} {
		file := write(t, c.text)
		changed, err := client(t, c.name).Install(file, "sandboxmcp", entry)
		if changed || sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "not changed") {
			t.Errorf("%q: got %v, %v, want invalid_argument with %q", c.text, changed, err, c.want)
			continue
		}
		if got := read(t, file); got != c.text {
			t.Errorf("%q: the file is now %q", c.text, got)
		}
		fields := sandboxmcp.AsError(err).Fields
		if c.line > 0 && (fields["line"] != c.line || c.column > 0 && fields["column"] != c.column || fields["excerpt"] != strings.Split(c.text, "\n")[c.line-1]) {
			t.Errorf("%q: got %v, want line %d, column %d and the line", c.text, fields, c.line, c.column)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
			t.Errorf("%q: %v is left", c.text, left)
		}
	}
}

// TestLinksAndModesStay: the target of a link is replaced, with its mode; a new file is private.
func TestLinksAndModesStay(t *testing.T) {
	c := client(t, "cursor")
	file := write(t, "{}")
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	if changed, err := c.Install(link, "sandboxmcp", entry); err != nil || !changed {
		t.Fatalf("got %v, %v, want a change", changed, err)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link: got %s, %v, want it to be there", to, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 || !strings.Contains(read(t, file), "sandboxmcp") {
		t.Errorf("the target: got %v, %v, want mode 640 and the entry", info.Mode(), err)
	}
	fresh := filepath.Join(t.TempDir(), "a", "b", "mcp.json")
	if changed, err := c.Install(fresh, "sandboxmcp", entry); err != nil || !changed {
		t.Fatalf("got %v, %v, want a new file", changed, err)
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new file: got %v, %v, want mode 600", info.Mode(), err)
	}
	dangling := filepath.Join(t.TempDir(), "dangling")
	if err := os.Symlink(filepath.Join(t.TempDir(), "none"), dangling); err != nil {
		t.Fatal(err)
	}
	if changed, err := c.Install(dangling, "sandboxmcp", entry); err == nil || changed {
		t.Errorf("a link to nothing: got %v, %v, want a refusal", changed, err)
	}
	if changed, err := c.Install(t.TempDir(), "sandboxmcp", entry); err == nil || changed {
		t.Errorf("a directory: got %v, %v, want a refusal", changed, err)
	}
	if changed, err := c.Remove(filepath.Join(t.TempDir(), "none"), "sandboxmcp"); err != nil || changed {
		t.Errorf("remove from no file: got %v, %v, want no change", changed, err)
	}
	for _, bad := range []string{"", "a b", "a.b", "../x", strings.Repeat("a", 65)} {
		if _, err := c.Install(file, bad, entry); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("name %q: got %v, want invalid_argument", bad, err)
		}
	}
}

// TestEachClientHasItsFile on each system.
func TestEachClientHasItsFile(t *testing.T) {
	none := func(string) string { return "" }
	for _, c := range []struct {
		name, os string
		vars     map[string]string
		want     string
	}{
		{"claude", "linux", nil, "/h/.claude.json"},
		{"claude", "linux", map[string]string{"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"},
		{"claude-desktop", "darwin", nil, "/h/Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", "windows", map[string]string{"APPDATA": "/app"}, "/app/Claude/claude_desktop_config.json"},
		{"claude-desktop", "linux", nil, "/h/.config/Claude/claude_desktop_config.json"},
		{"cursor", "darwin", nil, "/h/.cursor/mcp.json"},
		{"gemini", "linux", nil, "/h/.gemini/settings.json"},
		{"codex", "linux", nil, "/h/.codex/config.toml"},
		{"codex", "linux", map[string]string{"CODEX_HOME": "/x"}, "/x/config.toml"},
		{"vscode", "linux", nil, "/h/.config/Code/User/mcp.json"},
		{"vscode", "linux", map[string]string{"XDG_CONFIG_HOME": "/xdg"}, "/xdg/Code/User/mcp.json"},
		{"vscode", "darwin", nil, "/h/Library/Application Support/Code/User/mcp.json"},
		{"vscode", "windows", nil, "/h/AppData/Roaming/Code/User/mcp.json"},
	} {
		got, err := client(t, c.name).File(enroll.Place{OS: c.os, Home: "/h", Var: func(n string) string { return c.vars[n] }})
		if err != nil || filepath.ToSlash(got) != c.want {
			t.Errorf("%s on %s: got %s, %v, want %s", c.name, c.os, got, err, c.want)
		}
	}
	if _, err := client(t, "claude").File(enroll.Place{OS: "linux", Var: none}); err == nil {
		t.Error("without HOME: got no error")
	}
	if got := enroll.Names(); len(got) != 6 {
		t.Errorf("got clients %v, want six", got)
	}
	for _, name := range enroll.Names() {
		text, err := client(t, name).Text("sandboxmcp", entry)
		if err != nil || servers(name, decode(t, name, string(text)))["sandboxmcp"] == nil {
			t.Errorf("%s: got %s, %v, want the entry", name, text, err)
		}
	}
}

// TestDeepFiles: a file whose values are nested without end is refused and not changed.
func TestDeepFiles(t *testing.T) {
	for _, c := range []struct{ client, begin string }{{"claude", ""}, {"codex", "a = "}, {"claude", `/*"*/`}, {"claude", "//\"\\\n"}, {"claude", `{"\"": /* " // */`}} {
		text := c.begin + strings.Repeat("[", 3_000_000)
		file := write(t, text)
		if _, err := client(t, c.client).Install(file, "s", enroll.Entry{Command: "c"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s, after %q: got %v, want invalid_argument", c.client, c.begin, err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%s, after %q: the file has changed, or cannot be read: %v", c.client, c.begin, err)
		}
	}
}
