package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
)

// suite is the result of one run of one test runner.
type suite struct {
	Name     string   `json:"name"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skips    []skip   `json:"skips"`
	Failures []string `json:"failures"` // names of failed tests
	Alone    []alone  `json:"alone"`    // those of Failures that can be run alone
	Unsteady []string `json:"unsteady"` // tests that failed, and passed when they were run alone
}

// alone says how to run one failed test without the others.
type alone struct {
	Test string `json:"test"` // as in Failures
	Dir  string `json:"dir"`  // of the package in the checkout; of no meaning for a case of the kit
	Run  string `json:"run"`  // the pattern for -run, or the name of the case
}

// skip is a test that did not run, and why.
type skip struct {
	Test   string `json:"test"`
	Reason string `json:"reason"`
}

func (s *suite) good() bool { return s.Failed == 0 && !s.empty() }

func (s *suite) empty() bool { return s.Passed+s.Failed+len(s.Skips) == 0 }

func (s *suite) fail(name string) {
	s.Failed++
	s.Failures = append(s.Failures, name)
}

// mostAlone is how many failed tests of a suite are run again. When more fail, that is not for
// want of processor time.
const mostAlone = 5

// again returns the failed tests that are to be run alone: all of them or none.
func (s *suite) again() []alone {
	if len(s.Alone) > mostAlone || len(s.Alone) != len(s.Failures) {
		return nil
	}
	return s.Alone
}

// pass counts a failed test as passed, because it did so alone.
func (s *suite) pass(test string) error {
	i := slices.Index(s.Failures, test)
	if i < 0 {
		return fmt.Errorf("%s did not fail", test)
	}
	s.Failures = slices.Delete(s.Failures, i, i+1)
	s.Alone = slices.DeleteFunc(s.Alone, func(a alone) bool { return a.Test == test })
	s.Unsteady = append(s.Unsteady, test)
	s.Failed--
	s.Passed++
	return nil
}

func (s *suite) save(path string) error {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("encode the counts: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep the counts: %w", err)
	}
	return nil
}

func load(path string) (*suite, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the counts: %w", err)
	}
	s := &suite{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read the counts in %s: %w", path, err)
	}
	return s, nil
}

// note makes a suite of a single check that a script has done itself. verdict is pass, fail
// or skip.
func note(name, verdict, text string, out io.Writer) *suite {
	s := &suite{Name: name}
	switch verdict {
	case "pass":
		s.Passed = 1
		fmt.Fprintf(out, "ok    %s  %s\n", name, text)
	case "skip":
		s.Skips = []skip{{Test: name, Reason: text}}
		fmt.Fprintf(out, "skip  %s  %s\n", name, text)
	default:
		s.fail(text)
		fmt.Fprintf(out, "FAIL  %s  %s\n", name, text)
	}
	return s
}

// total prints the skips by reason, the failures by name and the closing line. It reports
// whether nothing failed.
func total(paths []string, out io.Writer) (bool, error) {
	var all suite
	good := true
	var suites []*suite
	for _, p := range paths {
		s, err := load(p)
		if err != nil {
			return false, err
		}
		suites = append(suites, s)
		good = good && s.good()
		all.Passed += s.Passed
		all.Failed += s.Failed
		all.Skips = append(all.Skips, s.Skips...)
	}
	byReason := map[string][]string{}
	for _, s := range suites {
		for _, k := range s.Skips {
			byReason[k.Reason] = append(byReason[k.Reason], s.Name+": "+k.Test)
		}
	}
	reasons := make([]string, 0, len(byReason))
	for r := range byReason {
		reasons = append(reasons, r)
	}
	sort.Strings(reasons)
	if len(reasons) > 0 {
		fmt.Fprintln(out, "\nskipped:")
	}
	for _, r := range reasons {
		fmt.Fprintf(out, "  %s\n", r)
		for _, t := range byReason[r] {
			fmt.Fprintf(out, "      %s\n", t)
		}
	}
	fmt.Fprintln(out)
	for _, s := range suites {
		for _, u := range s.Unsteady {
			fmt.Fprintf(out, "UNSTEADY  %s: %s failed, and passed when it was run alone\n", s.Name, u)
		}
		for _, f := range s.Failures {
			fmt.Fprintf(out, "FAILED  %s: %s\n", s.Name, f)
		}
		if s.empty() {
			fmt.Fprintf(out, "FAILED  %s: ran nothing\n", s.Name)
			all.Failed++
		}
		fmt.Fprintf(out, "%-28s %5d passed %5d failed %5d skipped\n", s.Name, s.Passed, s.Failed, len(s.Skips))
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", all.Passed, all.Failed, len(all.Skips))
	return good, nil
}
