package artifact

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// BadName reports whether one part of a file's name is not handed out.
func BadName(part string) bool { return badName(part) != "" }

// badName tells why one part of a file's name is not handed out; empty when it
// is good. Blanks, apostrophes, letters and signs of all scripts are good. What
// cannot be seen, turns the direction of text or ends a line is not, nor are a
// double quote and a backslash, which mean something in headers and on screens.
func badName(part string) string {
	if !utf8.ValidString(part) {
		return "its name is not UTF-8"
	}
	for _, r := range part {
		switch {
		case r == '"' || r == '\\':
			return "its name holds a double quote or a backslash"
		case unicode.IsControl(r):
			return "its name holds a control character"
		case !unicode.IsPrint(r), r != ' ' && sandboxmcp.Blank(r):
			return "its name holds an invisible or unknown character"
		}
	}
	return ""
}

// printable is a name that can stand in a report: what is not printable is
// escaped as in a Go string, and what is long is cut.
func printable(name string) string {
	const limit = 300
	quoted := strconv.Quote(name)
	quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(quoted) > limit {
		quoted = strings.ToValidUTF8(quoted[:limit], "") + "…"
	}
	return quoted
}
