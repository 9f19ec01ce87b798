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

// readKit counts the cases of the acceptance kit and hands its lines on as they
// come, less its closing line, which would be taken for ours. A kit that ends
// without that line is a failure.
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
		case "skip":
			s.Skips = append(s.Skips, skip{Test: m[2], Reason: kitReason(m[3])})
		}
	})
	if !ended {
		s.fail("the kit did not come to its end")
	}
	return s, err
}

// kitReason leaves out how long a skipped case took and what an excepted one
// said, so that equal reasons are told once.
func kitReason(evidence string) string {
	evidence = kitTime.ReplaceAllString(evidence, "")
	if head, _, found := strings.Cut(evidence, " (it says: "); found {
		return head
	}
	return evidence
}
