package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// runURI names a kept part of a run: stdout, stderr or results.
func runURI(id sandboxmcp.RequestID, part string) string {
	return "run://" + string(id) + "/" + part
}

// shownStreams divides the room between the streams: one that needs less than
// half leaves the rest to the other.
func shownStreams(r sandboxmcp.Result) (stdout, stderr, stdoutURI, stderrURI string) {
	stdout, stderr = r.Stdout, r.Stderr
	if len(stdout)+len(stderr) <= shownChars { // as bytes: never more characters
		return stdout, stderr, "", ""
	}
	out, err := chars(stdout), chars(stderr)
	if out+err <= shownChars {
		return stdout, stderr, "", ""
	}
	const half = shownChars / 2
	outRoom, errRoom := half, half
	switch {
	case out < half:
		outRoom, errRoom = out, shownChars-out
	case err < half:
		outRoom, errRoom = shownChars-err, err
	}
	if out > outRoom {
		stdoutURI = runURI(r.RequestID, "stdout")
		stdout = headAndTail(stdout, outRoom, stdoutURI)
	}
	if err > errRoom {
		stderrURI = runURI(r.RequestID, "stderr")
		stderr = headAndTail(stderr, errRoom, stderrURI)
	}
	return stdout, stderr, stdoutURI, stderrURI
}

// chars counts the characters of s, exactly only where it may be few enough.
func chars(s string) int {
	if len(s) > utf8.UTFMax*shownChars {
		return shownChars + 1
	}
	return utf8.RuneCountInString(s)
}

// headAndTail returns at most room characters of s: its beginning, how many
// bytes are left out and where they are, its end.
func headAndTail(s string, room int, uri string) string {
	const words = 60 // room for the words and the number between
	keep := max(room-words-utf8.RuneCountInString(uri), 0)
	head := s[:after(s, keep/2)]
	tail := s[before(s, keep-keep/2):]
	return fmt.Sprintf("%s\n[… %d bytes left out, whole at %s …]\n%s", head, len(s)-len(head)-len(tail), uri, tail)
}

// after returns the offset behind the first n characters of s.
func after(s string, n int) int {
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return i
}

// before returns the offset of the last n characters of s.
func before(s string, n int) int {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return i
}

// clip returns at most n characters of s, with a mark when some are gone.
func clip(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	return s[:after(s, n-1)] + "…"
}

// shownResults takes long values out of rich results. A picture is shown as a
// block instead; the whole list is a resource.
func shownResults(r sandboxmcp.Result) []sandboxmcp.RichResult {
	shown := make([]sandboxmcp.RichResult, 0, len(r.Results))
	for _, bundle := range r.Results {
		b := make(sandboxmcp.RichResult, len(bundle))
		for kind, v := range bundle {
			b[kind] = shownValue(kind, v, runURI(r.RequestID, "results"))
		}
		shown = append(shown, b)
	}
	return shown
}

func shownValue(kind string, v any, uri string) any {
	switch v := v.(type) {
	case bool, nil:
		return v
	case string:
		if len(v) <= inlineBytes {
			return v
		}
		if strings.HasPrefix(kind, "image/") && kind != "image/svg+xml" {
			return "" // base64 that is cut is of no use
		}
		return headAndTail(v, inlineBytes, uri)
	default:
		text, err := json.Marshal(v)
		if err != nil || len(text) > inlineBytes {
			return fmt.Sprintf("[… %d bytes left out, whole at %s …]", len(text), uri)
		}
		return v
	}
}
