//go:build !linux

// Command bench measures this product beside its peers. The sandboxes are those
// of Linux, and so is the benchmark.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: there is nothing to measure on this system; run it on Linux")
	os.Exit(1)
}
