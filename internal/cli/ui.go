package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
)

// Output style: results go to stdout. Messages go to stderr, one line each, after the
// program's name, in lower case and without a full stop; a failure also says what to do
// next. Escape sequences are printed on terminals only. Control characters from sandboxes
// are replaced. The output of programs is filtered on a terminal, and passed on byte for
// byte elsewhere.

// failure prints an error in one line on stderr. It includes the cause, because the
// person at the terminal is the operator.
func (a *call) failure(e *sandboxmcp.Error) {
	text := string(e.Code) + ": " + e.Message
	if e.Err != nil {
		text = withCause(text, e.Err.Error())
	}
	hint := e.Hint
	if hint == "" {
		hint = e.Code.Row().Hint
	}
	a.Say(text + " (" + hint + ")")
	a.excerpt(e)
}

// excerpt prints the line of a file that an error is about, with a caret below the place.
func (a *call) excerpt(e *sandboxmcp.Error) {
	line, _ := e.Fields["line"].(int)
	column, _ := e.Fields["column"].(int)
	text, ok := e.Fields["excerpt"].(string)
	if !ok || line < 1 || column < 1 {
		return
	}
	const most = 100 // characters on either side of the place
	before := []rune(text[:min(column-1, len(text))])
	after := []rune(text[min(column-1, len(text)):])
	before, after = before[max(0, len(before)-most):], after[:min(most, len(after))]
	mark := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(before))
	shown := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return []rune(app.Clean(string(r)))[0]
	}, string(before)+string(after))
	margin := strconv.Itoa(line)
	_, _ = io.WriteString(a.Stderr, "  "+margin+" | "+shown+"\n  "+strings.Repeat(" ", len(margin))+" | "+mark+"^\n")
}

// withCause appends a cause to a text, unless the text contains the cause or its last part
// already.
func withCause(text, cause string) string {
	for !strings.Contains(text, cause) {
		i := strings.LastIndex(cause, ": ")
		if i < 0 || !strings.HasSuffix(text, cause[i:]) {
			return text + ": " + cause
		}
		cause = cause[:i]
	}
	return text
}

// print writes text to stdout.
func (a *call) print(text string) { _, _ = io.WriteString(a.Stdout, text) }

// printJSON writes one JSON document to stdout. It escapes everything that is not printable:
// output of programs is in it, and terminals act upon control characters beyond ASCII, too.
func (a *call) printJSON(v any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
	_, _ = a.Stdout.Write(printableJSON(text.Bytes()))
}

// printableJSON escapes the characters of a JSON document that are not printable. It keeps
// line ends; other characters below U+0020 are escaped already.
func printableJSON(doc []byte) []byte {
	odd := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	if bytes.IndexFunc(doc, odd) < 0 {
		return doc
	}
	out := make([]byte, 0, len(doc)+len(doc)/16)
	for at := 0; at < len(doc); {
		r, size := utf8.DecodeRune(doc[at:])
		switch {
		case !odd(r):
			out = append(out, doc[at:at+size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		at += size
	}
	return out
}

// printText prints what a program wrote, and ends its last line.
func (a *call) printText(text string) {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	a.print(a.ofProgram(text))
}

// answer prints a result: as one JSON document, or by calling show.
func (a *call) answer(document bool, v any, show func()) error {
	if document {
		a.printJSON(v)
	} else {
		show()
	}
	return nil
}

// document reports whether to print JSON, for commands that print JSON by default if stdout
// is not a terminal.
func (a *call) document() bool { return a.json || !a.terminal }

// table writes rows in columns, in which control characters are replaced. On a terminal
// the table fits its width.
func (a *call) table(rows [][]string) {
	for _, r := range rows {
		for i, c := range r {
			r[i] = app.Clean(c)
		}
	}
	a.grid(rows)
}

// grid writes rows in columns. On a terminal they fit its width. The cells may have
// colors; text of programs in them must be clean.
func (a *call) grid(rows [][]string) {
	a.print(strings.Join(terminal.Table(rows, terminal.Width(a.screen)), "\n") + "\n")
}

// ofProgram returns what a program wrote in the form that stdout gets: on a terminal only
// text and colors, unless --raw is given.
func (a *call) ofProgram(text string) string {
	if a.terminal && !a.raw {
		return terminal.Filtered(text)
	}
	return text
}

const (
	green = "32"
	red   = "31"
	bold  = "1"
)

// paint colors text on a terminal.
func (a *call) paint(color, text string) string {
	if !a.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// clock formats a time.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// counted formats a number of things. The plural of thing ends in s or es.
func counted(n int64, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "s"):
		thing += "es"
	case strings.HasSuffix(thing, "y"):
		thing = strings.TrimSuffix(thing, "y") + "ies"
	default:
		thing += "s"
	}
	return strconv.FormatInt(n, 10) + " " + thing
}

// shown formats a setting's value for a table.
func shown(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
