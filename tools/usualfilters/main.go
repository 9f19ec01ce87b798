// Command usualfilters writes the compiled filters that package seccomp has for the usual
// variants, so that a server need not compile them when it starts.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

//go:generate go run . ../../internal/jail/seccomp

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "usualfilters:", err)
		os.Exit(1)
	}
}

// run writes the filters of each architecture into the directory in args.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: usualfilters DIR")
	}
	for _, a := range []seccomp.Arch{seccomp.AMD64, seccomp.ARM64} {
		text, err := seccomp.CompileUsual(a)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[0], "usual_"+string(a)+".bin"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
