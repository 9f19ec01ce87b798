package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// runURI returns the URI of a stored part of a run: stdout, stderr or results.
func runURI(id sandboxmcp.RequestID, part string) string {
	return "run://" + string(id) + "/" + part
}

// shownStreams shortens stdout and stderr so that they fit into room together. room is called only
// if the streams need more than minStreams.
func shownStreams(r sandboxmcp.Result, room func() int) (stdout, stderr, stdoutURI, stderrURI string) {
	need := cost(r.Stdout) + cost(r.Stderr)
	if need <= minStreams {
		return r.Stdout, r.Stderr, "", ""
	}
	all := max(room(), minStreams)
	if need <= all {
		return r.Stdout, r.Stderr, "", ""
	}
	return shownWithin(r, r.Stdout, r.Stderr, all)
}

// shownWithin shortens the texts of both streams of r to room characters together. A stream that
// needs less than half leaves the rest to the other one. Streams that differ from those of r get
// their URIs.
func shownWithin(r sandboxmcp.Result, stdout, stderr string, room int) (shownOut, shownErr, stdoutURI, stderrURI string) {
	out, err := cost(stdout), cost(stderr)
	half := room / 2
	outRoom, errRoom := half, half
	switch {
	case out < half:
		outRoom, errRoom = out, room-out
	case err < half:
		outRoom, errRoom = room-err, err
	}
	uri := runURI(r.RequestID, "stdout")
	if out > outRoom {
		stdout = headAndTail(stdout, outRoom, whereKept(r.Stdout, r.StdoutTruncated, uri), stdout != r.Stdout)
	}
	if stdout != r.Stdout {
		stdoutURI = uri
	}
	uri = runURI(r.RequestID, "stderr")
	if err > errRoom {
		stderr = headAndTail(stderr, errRoom, whereKept(r.Stderr, r.StderrTruncated, uri), stderr != r.Stderr)
	}
	if stderr != r.Stderr {
		stderrURI = uri
	}
	return stdout, stderr, stdoutURI, stderrURI
}

// cost returns the number of characters of s in an answer. It is exact only if it is small.
func cost(s string) int {
	n := 0
	for _, r := range s {
		if n += runeCost(r); n > costBound {
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

// leftOutMark is in a text that was cut.
const leftOutMark = " left out, "

// headAndTail shortens s to room characters: its beginning, a note of how many bytes are left
// out and where they are, and its end. If s is folded, the number is not known.
func headAndTail(s string, room int, where string, folded bool) string {
	const words = 51 // characters of the note without where
	keep := max(room-words-utf8.RuneCountInString(where), 0)
	first := keep * 10 / 16 // the head tells more than the tail
	head := s[:after(s, first)]
	tail := s[before(s, keep-first):]
	left := fmt.Sprintf("%d bytes", len(s)-len(head)-len(tail))
	if folded {
		left = "more lines"
	}
	return head + "\n[… " + left + leftOutMark + where + " …]\n" + tail
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
		return headAndTail(v, room, "whole at "+uri, false), room
	default:
		text, err := json.Marshal(v)
		if err != nil || len(text) > room {
			return fmt.Sprintf("[… %d bytes left out, whole at %s …]", len(text), uri), 0
		}
		return v, len(text)
	}
}
