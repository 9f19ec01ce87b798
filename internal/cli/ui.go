package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// The voice: results go to stdout, everything about them to stderr, one line
// each, with the program's name in front. Lower case, no full stop, and after
// a failure what to do next. No escape sequence leaves us off a terminal, and
// nothing that came out of a sandbox reaches a terminal as a control character
// except the output of `run`, which is the program's.

// failure says on stderr what went wrong, in one line. The person at the
// keyboard is the operator, so the cause is told as well.
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

// withCause adds a cause to a text that may have said it already, or the end of it.
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

// printJSON writes one JSON document to stdout.
func (a *call) printJSON(v any) {
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

// answer prints what a command has found out: as one JSON document, or as show does.
func (a *call) answer(document bool, v any, show func()) error {
	if document {
		a.printJSON(v)
	} else {
		show()
	}
	return nil
}

// document reports whether a command that prints JSON off a terminal should.
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

// clock is a time as it is shown.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// shown is a setting's value in a table.
func shown(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
