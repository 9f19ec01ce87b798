// Package enroll enters this program as a server in the configuration files of MCP clients,
// and takes it out again. Everything else in such a file stays as it is: other servers,
// settings and comments. After each edit both texts are decoded and compared. A file that
// cannot be parsed, or an entry that cannot be edited safely, is refused with its place, and
// the file is not changed. Files are replaced atomically. Links are followed.
package enroll

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxFile bounds a configuration file. Claude Code keeps its history in the same file.
const maxFile = 64 << 20

// Entry says how a client starts a server.
type Entry struct {
	Command string
	Args    []string
	Env     map[string]string // added to the environment of the client; may be empty
}

// Place is the user whose configuration files are meant.
type Place struct {
	OS   string                   // as runtime.GOOS
	Home string                   // home directory
	Var  func(name string) string // environment variable, or an empty text
}

// Client is an MCP client and its configuration file.
type Client struct {
	Name  string // value of --client
	Title string // name of the product

	file  func(p Place) string
	key   string // name of the table of servers
	typed bool   // entries of programs name their type
	edit  func(data []byte, e change) ([]byte, error)
	show  func(e change) ([]byte, error)
}

// change is what is to become of an entry.
type change struct {
	key    string // name of the table of servers
	server string
	fields map[string]any // fields that the entry gets; nil: the entry is removed
}

// clients lists the known clients.
func clients() []Client {
	return []Client{
		{
			Name: "claude", Title: "Claude Code", key: "mcpServers", typed: true, edit: editJSON, show: showJSON,
			file: func(p Place) string {
				if dir := p.Var("CLAUDE_CONFIG_DIR"); dir != "" {
					return filepath.Join(dir, ".claude.json")
				}
				return filepath.Join(p.Home, ".claude.json")
			},
		},
		{
			Name: "claude-desktop", Title: "Claude Desktop", key: "mcpServers", edit: editJSON, show: showJSON,
			file: func(p Place) string { return filepath.Join(p.programs(), "Claude", "claude_desktop_config.json") },
		},
		{
			Name: "cursor", Title: "Cursor", key: "mcpServers", typed: true, edit: editJSON, show: showJSON,
			file: func(p Place) string { return filepath.Join(p.Home, ".cursor", "mcp.json") },
		},
		{
			Name: "gemini", Title: "Gemini CLI", key: "mcpServers", edit: editJSON, show: showJSON,
			file: func(p Place) string { return filepath.Join(p.Home, ".gemini", "settings.json") },
		},
		{
			Name: "codex", Title: "Codex", key: "mcp_servers", edit: editTOML, show: showTOML,
			file: func(p Place) string {
				if dir := p.Var("CODEX_HOME"); dir != "" {
					return filepath.Join(dir, "config.toml")
				}
				return filepath.Join(p.Home, ".codex", "config.toml")
			},
		},
		{
			Name: "vscode", Title: "VS Code", key: "servers", typed: true, edit: editJSON, show: showJSON,
			file: func(p Place) string { return filepath.Join(p.programs(), "Code", "User", "mcp.json") },
		},
	}
}

// programs returns the directory in which desktop programs keep their settings.
func (p Place) programs() string {
	switch p.OS {
	case "darwin":
		return filepath.Join(p.Home, "Library", "Application Support")
	case "windows":
		if dir := p.Var("APPDATA"); dir != "" {
			return dir
		}
		return filepath.Join(p.Home, "AppData", "Roaming")
	}
	if dir := p.Var("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(p.Home, ".config")
}

// Names returns the names of the known clients.
func Names() []string {
	var names []string
	for _, c := range clients() {
		names = append(names, c.Name)
	}
	return names
}

// Find returns the client of a name.
func Find(name string) (Client, bool) {
	all := clients()
	i := slices.IndexFunc(all, func(c Client) bool { return c.Name == name })
	if i < 0 {
		return Client{}, false
	}
	return all[i], true
}

// File returns the path of the client's configuration file of a user.
func (c Client) File(p Place) (string, error) {
	if !filepath.IsAbs(p.Home) {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the configuration of %s cannot be found: HOME is not set", c.Title).
			WithHint("set HOME, or name the file with --file")
	}
	return c.file(p), nil
}

var nameOK = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) })

// CheckName fails if a text cannot be the name of a server.
func CheckName(server string) error {
	if !nameOK().MatchString(server) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "server name %s is not 1 to 64 characters of A-Z a-z 0-9 _ -", sandboxmcp.Quote(server)).
			WithHint("choose another --name")
	}
	return nil
}

// Fields returns the fields of an entry, as they stand in the client's file.
func (c Client) Fields(e Entry) map[string]any {
	args := make([]any, 0, len(e.Args))
	for _, a := range e.Args {
		args = append(args, a)
	}
	fields := map[string]any{"command": e.Command, "args": args}
	if c.typed {
		fields["type"] = "stdio"
	}
	if len(e.Env) > 0 {
		env := map[string]any{}
		for k, v := range e.Env {
			env[k] = v
		}
		fields["env"] = env
	}
	return fields
}

// Text returns a configuration file that has the entry alone.
func (c Client) Text(server string, e Entry) ([]byte, error) {
	return c.show(change{c.key, server, c.Fields(e)})
}

// Install enters a server into a configuration file, or updates its command, arguments and
// variables there; other fields of its entry stay. It creates a missing file. It reports
// whether the file has changed.
func (c Client) Install(file, server string, e Entry) (bool, error) {
	return c.apply(file, change{c.key, server, c.Fields(e)})
}

// Remove takes a server out of a configuration file. It reports whether the file had it.
func (c Client) Remove(file, server string) (bool, error) {
	return c.apply(file, change{c.key, server, nil})
}

func (c Client) apply(file string, ch change) (bool, error) {
	if err := CheckName(ch.server); err != nil {
		return false, err
	}
	data, err := plainfile.Read(file, maxFile)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && ch.fields == nil:
		return false, nil
	case err != nil && !missing:
		return false, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the configuration %s of %s cannot be read", file, c.Title).
			WithHint("correct the file, or name another with --file").WithCause(err)
	}
	text, mark := strings.CutPrefix(string(data), byteOrderMark)
	out, err := c.edit([]byte(text), ch)
	if err != nil {
		return false, c.refusal(file, text, err)
	}
	if string(out) == text {
		return false, nil
	}
	if mark {
		out = append([]byte(byteOrderMark), out...)
	}
	if err := replace(file, data, out, missing); err != nil {
		return false, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the configuration %s of %s cannot be written, and is as it was", file, c.Title).
			WithHint("check its permissions and free space, or use --print and enter it by hand").WithCause(err)
	}
	return true, nil
}

// byteOrderMark begins files of some editors on Windows.
const byteOrderMark = "\ufeff"

// placeError is a fault of a text with its place. A line of 0 means that there is none.
type placeError struct {
	line, column int // from 1; columns count bytes
	text         string
}

// Error returns the message without the place.
func (e *placeError) Error() string { return e.text }

func faultAt(data []byte, offset int, text string) error {
	offset = min(max(offset, 0), len(data))
	before := string(data[:offset])
	return &placeError{strings.Count(before, "\n") + 1, offset - strings.LastIndexByte(before, '\n'), text}
}

// refusal is the error for a file that is not edited. It has the line and the column of the
// fault.
func (c Client) refusal(file, text string, err error) error {
	where := file
	at, ok := errors.AsType[*placeError](err)
	if !ok {
		return err
	}
	if at.line > 0 {
		where = file + ":" + strconv.Itoa(at.line) + ":" + strconv.Itoa(at.column)
	}
	e := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s: %s; the file is not changed", where, at.text).
		WithHint("correct the file, or use --print and enter it by hand")
	if at.line > 0 {
		lines := strings.Split(text, "\n")
		e = e.With("line", at.line).With("column", at.column).With("excerpt", strings.TrimRight(lines[min(at.line, len(lines))-1], "\r"))
	}
	return e
}

// merged returns the fields of an entry after a change: those of the change replace old ones,
// and variables are added to the old ones.
func merged(old, fields map[string]any) map[string]any {
	all := maps.Clone(old)
	if all == nil {
		all = map[string]any{}
	}
	for k, v := range fields {
		env, isEnv := v.(map[string]any)
		was, had := all[k].(map[string]any)
		if isEnv && had {
			v = merged(was, env)
		}
		all[k] = v
	}
	return all
}

// remote reports whether an entry is of a server that the client reaches by a URL.
func remote(entry map[string]any) bool {
	for _, k := range []string{"url", "httpUrl", "serverUrl"} {
		if _, there := entry[k]; there {
			return true
		}
	}
	return false
}
