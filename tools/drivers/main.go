// Command drivers writes the whole texts of the Python drivers that package kernel has, so that a
// server need not assemble them when it starts.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp/internal/kernel/assemble"
)

//go:generate go run . ../../internal/kernel

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "drivers:", err)
		os.Exit(1)
	}
}

// run writes the texts below the directory of package kernel in args.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: drivers DIR")
	}
	texts, err := assemble.Texts(filepath.Join(args[0], "drivers"))
	if err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(args[0], "assembled", name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
