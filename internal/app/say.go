package app

import (
	"io"
	"strings"
	"unicode"
)

// Say prints a message on stderr. Commands in it get the form that a person can paste. A program may have
// changed a terminal's colors, so that the message could not be seen.
func (a *App) Say(text string) {
	colors := ""
	if a.Watched {
		colors = "\x1b[m"
	}
	_, _ = io.WriteString(a.Stderr, colors+"sandboxmcp: "+Clean(a.Paste(OneLine(text)))+"\n")
}

// Clean replaces control characters, which a terminal would act upon.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// OneLine joins the lines of a text and cleans it.
func OneLine(s string) string { return Clean(strings.Join(strings.Fields(s), " ")) }
