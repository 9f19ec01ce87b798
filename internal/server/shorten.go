package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// runURI returns the URI of a stored part of a run: stdout, stderr or results.
func runURI(id sandboxmcp.RequestID, part string) string {
	return "run://" + string(id) + "/" + part
}

// shownStreams shortens stdout and stderr so that they fit into room together. A stream that
// needs less than half leaves the rest to the other one. room is called only if the streams
// need more than minStreams.
func shownStreams(r sandboxmcp.Result, room func() int) (stdout, stderr, stdoutURI, stderrURI string) {
	stdout, stderr = r.Stdout, r.Stderr
	out, err := cost(stdout), cost(stderr)
	if out+err <= minStreams {
		return stdout, stderr, "", ""
	}
	all := max(room(), minStreams)
	if out+err <= all {
		return stdout, stderr, "", ""
	}
	half := all / 2
	outRoom, errRoom := half, half
	switch {
	case out < half:
		outRoom, errRoom = out, all-out
	case err < half:
		outRoom, errRoom = all-err, err
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

// cost returns the number of characters of s in an answer. It is exact only if it is small.
func cost(s string) int {
	n := 0
	for _, r := range s {
		if n += runeCost(r); n > shownChars {
			break
		}
	}
	return n
}

// runeCost returns how many characters r takes in an answer: those of its JSON escape, or
// its UTF-16 units.
func runeCost(r rune) int {
	switch r {
	case '"', '\\', '\n', '\r', '\t', '\b', '\f':
		return 2
	case '\u2028', '\u2029', utf8.RuneError: // an invalid byte is encoded as the escape of RuneError
		return 6
	}
	switch {
	case r < ' ':
		return 6
	case r > 0xFFFF:
		return 2
	}
	return 1
}

// headAndTail shortens s to room characters: its beginning, a note of how many bytes are left
// out and their URI, and its end.
func headAndTail(s string, room int, uri string) string {
	const words = 60 // characters of the note without the URI
	keep := max(room-words-utf8.RuneCountInString(uri), 0)
	first := keep * 10 / 16 // the head tells more than the tail
	head := s[:after(s, first)]
	tail := s[before(s, keep-first):]
	return fmt.Sprintf("%s\n[… %d bytes left out, whole at %s …]\n%s", head, len(s)-len(head)-len(tail), uri, tail)
}

// after returns the length of the longest prefix of s that costs at most room.
func after(s string, room int) int {
	i := 0
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		if room -= runeCost(r); room < 0 {
			break
		}
		i += size
	}
	return i
}

// before returns the offset in s from which the rest costs at most room.
func before(s string, room int) int {
	i := len(s)
	for i > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if room -= runeCost(r); room < 0 {
			break
		}
		i -= size
	}
	return i
}

// clip shortens s to a cost of n, and marks that it was shortened.
func clip(s string, n int) string {
	if cost(s) <= n {
		return s
	}
	return s[:after(s, n-1)] + "…"
}

// shownResults shortens or removes values of rich results that are long or exceed the
// total. Pictures become blocks of the answer. The whole list is a resource.
func shownResults(r sandboxmcp.Result) []sandboxmcp.RichResult {
	shown := make([]sandboxmcp.RichResult, 0, len(r.Results))
	left := resultChars
	for _, bundle := range r.Results {
		b := make(sandboxmcp.RichResult, len(bundle))
		for _, kind := range slices.Backward(slices.Sorted(maps.Keys(bundle))) { // backward, so that text/plain comes before images and HTML
			v, took := shownValue(kind, bundle[kind], left, runURI(r.RequestID, "results"))
			b[kind] = v
			left -= min(took, left)
		}
		shown = append(shown, b)
	}
	return shown
}

// shownValue returns v, or a shorter replacement if v costs more than room, and its cost.
func shownValue(kind string, v any, room int, uri string) (shown any, took int) {
	switch v := v.(type) {
	case bool, nil:
		return v, 0
	case string:
		if n := cost(v); n <= room {
			return v, n
		}
		if strings.HasPrefix(kind, "image/") && kind != "image/svg+xml" {
			return "", 0 // shortened base64 is useless
		}
		return headAndTail(v, room, uri), room
	default:
		text, err := json.Marshal(v)
		if err != nil || len(text) > room {
			return fmt.Sprintf("[… %d bytes left out, whole at %s …]", len(text), uri), 0
		}
		return v, len(text)
	}
}
