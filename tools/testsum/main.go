// Command testsum summarizes the output of test runners for people and CI: failures in
// full, skips with their reasons, and one closing line "N passed, N failed, N skipped" over
// all suites of a run.
//
//	go test -json ./... | testsum go SUITE FILE   # live; writes the counts to FILE
//	../shared/acceptance/run … | testsum kit SUITE FILE
//	testsum note SUITE FILE pass|fail|skip TEXT    # one check that is no test runner's
//	testsum failed FILE                            # the failed tests: NAME, DIRECTORY and PATTERN, with tabs
//	testsum alone FILE NAME                        # that test passed when it was run alone
//	testsum total FILE…                            # report and closing line
//
// A test that passes alone counts as passed, and the report names it as unsteady. failed prints
// nothing if more than a few failed, or one that cannot be run alone: a build, a panic.
//
// The exit status is 1 if something failed or a suite ran no test.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

const usage = "usage: testsum go|kit SUITE FILE | note SUITE FILE pass|fail|skip TEXT | failed FILE | alone FILE NAME | total FILE…"

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var s *suite
	var err error
	switch {
	case len(args) == 3 && args[0] == "go":
		s, err = readGo(args[1], stdin, stdout)
	case len(args) == 3 && args[0] == "kit":
		s, err = readKit(args[1], stdin, stdout)
	case len(args) == 5 && args[0] == "note" && slices.Contains([]string{"pass", "fail", "skip"}, args[3]):
		s = note(args[1], args[3], args[4], stdout)
	case len(args) == 2 && args[0] == "failed":
		return failed(args[1], stdout, stderr)
	case len(args) == 3 && args[0] == "alone":
		if s, err = load(args[1]); err == nil {
			if err = s.pass(args[2]); err == nil {
				err = s.save(args[1])
			}
		}
		if err == nil {
			return 0
		}
	case len(args) > 1 && args[0] == "total":
		var good bool
		if good, err = total(args[1:], stdout); err == nil && good {
			return 0
		}
	default:
		fmt.Fprintln(stderr, usage)
		return 2
	}
	if err == nil && s != nil {
		err = s.save(args[2])
	}
	if err != nil {
		fmt.Fprintln(stderr, "testsum:", err)
		return 1
	}
	if s == nil || !s.good() {
		return 1 // also for a failed total, which has no suite
	}
	return 0
}

func failed(path string, stdout, stderr io.Writer) int {
	s, err := load(path)
	if err != nil {
		fmt.Fprintln(stderr, "testsum:", err)
		return 1
	}
	for _, a := range s.again() {
		fmt.Fprintf(stdout, "%s\t%s\t%s\n", a.Test, a.Dir, a.Run)
	}
	return 0
}

// lines calls fn for each line of r without its line ending. Lines may have any length.
func lines(r io.Reader, fn func([]byte)) error {
	b := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := b.ReadBytes('\n')
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		if len(line) > 0 {
			fn(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the runner's output: %w", err)
		}
	}
}
