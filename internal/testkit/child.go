package testkit

import (
	"fmt"
	"os"
	"testing"
)

// RunOrChild runs the tests of a package, and returns the exit status. If the environment
// variable env is set, it calls child with its value instead: a test has started the test
// binary as a second process.
func RunOrChild(m *testing.M, env string, child func(args string) error) int {
	args := os.Getenv(env)
	if args == "" {
		return m.Run()
	}
	if err := child(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
