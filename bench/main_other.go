//go:build !linux

// Command bench measures this product beside other sandboxes. It needs Linux, as the
// sandboxes do.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: there is nothing to measure on this system; run it on Linux")
	os.Exit(1)
}
