package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Limits of runaway output in a small answer. Its beginning and its end say what it is.
const (
	floodChars = 2_000 // characters of both streams of a run that output_limit has ended
	valueChars = 2_000 // characters of the plain text of one value
	foldFrom   = 3     // so many equal lines in a row are shown once
	stderrFits = 4_000 // characters of stderr in which equal lines stay as they are
)

// smallStreams is shownStreams for a small answer, in which tracebacks have few frames of Python's
// own library. If the streams do not fit, it folds equal lines, and cuts what is still too long.
func smallStreams(r sandboxmcp.Result, room func() int) (stdout, stderr, stdoutURI, stderrURI string) {
	stdout, stderr = r.Stdout, r.Stderr
	if r.Language == sandboxmcp.Python {
		stderr = withoutLibrary(stderr)
	}
	all := minStreams
	switch need := cost(stdout) + cost(stderr); {
	case r.Status == sandboxmcp.StatusOutputLimit:
		all = floodChars
	case need > minStreams:
		all = max(room(), minStreams)
	}
	if cost(stderr) > stderrFits {
		stderr = fold(stderr)
	}
	if cost(stdout)+cost(stderr) > all {
		stdout, stderr = fold(stdout), fold(stderr)
	}
	return shownWithin(r, stdout, stderr, all)
}

// fold returns s with each run of equal lines shown once, with their number.
func fold(s string) string {
	var b strings.Builder
	for from := 0; from < len(s); {
		line := s[from:]
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		n, end := 1, from+len(line)
		for strings.HasSuffix(line, "\n") && strings.HasPrefix(s[end:], line) {
			n, end = n+1, end+len(line)
		}
		words := fmt.Sprintf("[… the same line %d more times]\n", n-1)
		if n < foldFrom || len(words) >= (n-1)*len(line) {
			b.WriteString(s[from:end])
		} else {
			b.WriteString(line + words)
		}
		from = end
	}
	return b.String()
}

// whereKept names the place of the stream that an answer shows in part. cut: the server has kept
// only the beginning of the stream.
func whereKept(kept string, cut bool, uri string) string {
	if cut {
		return fmt.Sprintf("the first %d bytes at %s", len(kept), uri)
	}
	return "whole at " + uri
}

// partly is the note on streams that are shown in part, because not every host lets its model read
// resources.
const partly = "Output is shown in part: write it to a file in /mnt/data and print the part that you need."

// streamShown is a stream as an answer shows it.
type streamShown struct{ text, uri string }

// shownInPart returns partly, unless the streams are not cut or the note says it already.
func shownInPart(note string, streams ...streamShown) string {
	cut := slices.ContainsFunc(streams, func(s streamShown) bool { return s.uri != "" && strings.Contains(s.text, leftOutMark) })
	if !cut || strings.Contains(note, "a file in /mnt/data") {
		return ""
	}
	return partly
}

// Beginnings of the plain text of a plotly figure, and of each trace in it but the first.
const (
	plotlyBegins = "Figure({\n    'data': ["
	plotlyTrace  = "\n             {"
)

// shownPlain returns the plain text of a value in at most room characters. That of a plotly figure
// holds all its data, so that a line stands for it.
func shownPlain(text string, room int, where string) string {
	if cost(text) <= room {
		return text
	}
	if data, ok := strings.CutPrefix(text, plotlyBegins); ok && strings.HasPrefix(data, "{") {
		data, _, _ = strings.Cut(data, "\n    'layout': ")
		return "Figure with " + plural(1+strings.Count(data, plotlyTrace), "trace") + ", " + where
	}
	return headAndTail(text, room, where, false)
}

// plural returns a number with its word.
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
