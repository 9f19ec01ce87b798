package artifact

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// BadName reports whether a part of a file's path is not an acceptable name.
func BadName(part string) bool { return badName(part) != "" }

// badName returns why a part of a file's path is not an acceptable name, or "". It accepts
// spaces, apostrophes, and letters and signs of all scripts. It refuses characters that are
// invisible, end a line or change the direction of text. It also refuses the double quote
// and the backslash, which have a meaning in HTTP headers.
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

// printable returns a name for a report. Unprintable characters are escaped as in a Go
// string, and a long name is cut.
func printable(name string) string {
	const limit = 300
	quoted := strconv.Quote(name)
	quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(quoted) > limit {
		quoted = strings.ToValidUTF8(quoted[:limit], "") + "…"
	}
	return quoted
}
