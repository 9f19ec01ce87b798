package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

var (
	kitLine = regexp.MustCompile(`^(ok|FAIL|skip)\s+(\S+/\S+)  (.*)$`)
	kitLast = regexp.MustCompile(`^(\d+) passed, (\d+) failed, (\d+) skipped$`)
	kitTime = regexp.MustCompile(` \(\d+\.\d s\)$`)
)

// readKit counts the cases of the acceptance kit and passes its lines on as they arrive. It
// leaves out the kit's closing line, which would be taken for that of testsum. If the kit
// ends without that line, it counts as failed.
func readKit(name string, r io.Reader, out io.Writer) (*suite, error) {
	s := &suite{Name: name}
	ended := false
	err := lines(r, func(b []byte) {
		line := string(b)
		if m := kitLast.FindStringSubmatch(line); m != nil {
			ended = true
			if want := fmt.Sprintf("%d %d %d", s.Passed, s.Failed, len(s.Skips)); want != strings.Join(m[1:], " ") {
				s.fail("the kit counts " + line + ", its lines are " + want)
			}
			return
		}
		fmt.Fprintln(out, line)
		m := kitLine.FindStringSubmatch(line)
		if m == nil {
			return
		}
		switch m[1] {
		case "ok":
			s.Passed++
		case "FAIL":
			s.fail(m[2])
			s.Alone = append(s.Alone, alone{Test: m[2], Dir: ".", Run: m[2]})
		case "skip":
			s.Skips = append(s.Skips, skip{Test: m[2], Reason: kitReason(m[3])})
		}
	})
	if !ended {
		s.fail("the kit did not come to its end")
	}
	return s, err
}

// kitReason removes the duration of a skipped case and the output of an excepted one, so
// that equal reasons are printed once.
func kitReason(evidence string) string {
	evidence = kitTime.ReplaceAllString(evidence, "")
	if head, _, found := strings.Cut(evidence, " (it says: "); found {
		return head
	}
	return evidence
}
