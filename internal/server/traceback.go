package server

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// fewFrames is how many frames of Python's own library in a row a small answer shows.
const fewFrames = 2

var (
	frameLine   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^  File "([^"\n]+)", line \d+`) })
	libraryFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^<frozen |/lib(?:64)?/python3(?:\.\d+)?/`) })
	ownFile     = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^/(?:mnt/data|tmp|run/program)/|/(?:site|dist)-packages/`)
	})
)

// withoutLibrary replaces each row of frames of Python's own library in the tracebacks of a text by
// their number. Frames of the program and of packages stay, and so do the exceptions.
func withoutLibrary(text string) string {
	const begin = "Traceback (most recent call last):\n"
	if !strings.Contains(text, begin) {
		return text
	}
	var b strings.Builder
	var row []string // frames of the library, in a row
	flush := func() {
		if len(row) > fewFrames {
			fmt.Fprintf(&b, "  … %d frames of Python's own library\n", len(row))
		} else {
			b.WriteString(strings.Join(row, ""))
		}
		row = nil
	}
	inside, inLibrary := false, false
	for line := range strings.Lines(text) {
		m := frameLine().FindStringSubmatch(line)
		switch {
		case strings.HasSuffix(line, begin): // a traceback of a group is indented, and stays
			flush()
			inside, inLibrary = line == begin, false
			b.WriteString(line)
		case inside && m != nil && libraryFile().MatchString(m[1]) && !ownFile().MatchString(m[1]):
			row, inLibrary = append(row, line), true
		case inLibrary && m == nil && strings.HasPrefix(line, "  "): // code of the frame, or how often it repeats
			row[len(row)-1] += line
		default:
			flush()
			inLibrary, inside = false, inside && strings.HasPrefix(line, "  ")
			b.WriteString(line)
		}
	}
	flush()
	return b.String()
}
