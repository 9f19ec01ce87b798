package sandboxmcp

import (
	"regexp"
	"strings"
	"sync"
)

// Invocation says how a person calls this program in a shell, so that the command finds the
// same state directory and settings. The zero Invocation is the program on the PATH, with
// defaults.
type Invocation struct {
	Program  string // path of the program; empty: sandboxmcp
	StateDir string // empty: the default, or that of Config
	Config   string // path of the file of settings; empty: none
}

// Line returns the shell line for a command such as "egress list". The words of the command
// must be quoted for the shell.
func (i Invocation) Line(command string) string {
	line := "sandboxmcp"
	if i.Program != "" {
		line = ShellQuote(i.Program)
	}
	if i.StateDir != "" {
		line = "SANDBOXMCP_STATE_DIR=" + ShellQuote(i.StateDir) + " " + line
	}
	line += " " + command
	if i.Config != "" {
		line += " --config " + ShellQuote(i.Config)
	}
	return line
}

// commandInText is a command of this program as messages, hints and notes name it.
var commandInText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("`sandboxmcp ([^`]+)`") })

// Paste returns text with every command in it that is in backquotes, such as `sandboxmcp egress
// list`, replaced by its Line.
func (i Invocation) Paste(text string) string {
	if i == (Invocation{}) || !strings.Contains(text, "`sandboxmcp ") {
		return text
	}
	return commandInText().ReplaceAllStringFunc(text, func(found string) string {
		return "`" + i.Line(strings.TrimPrefix(strings.Trim(found, "`"), "sandboxmcp ")) + "`"
	})
}

var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`) })

// ShellQuote returns s as one word of a POSIX shell.
func ShellQuote(s string) string {
	if plainWord().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
