package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// Output style: results go to stdout. Messages go to stderr, one line each, after the
// program's name, in lower case and without a full stop; a failure also says what to do
// next. Escape sequences are printed on terminals only. Control characters from sandboxes
// are replaced, except in the output of `run`.

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

// table writes rows in columns; the first row is the heading.
func (a *call) table(rows [][]string) {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		for i, c := range r {
			r[i] = app.Clean(c)
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	_ = w.Flush()
}

const (
	green = "32"
	red   = "31"
	bold  = "1"
)

// paint colours text on a terminal.
func (a *call) paint(colour, text string) string {
	if !a.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// clock formats a time.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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
