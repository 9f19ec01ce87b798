// Command sandboxmcp runs code that nobody should trust in a real sandbox. See
// package cli for what it does, and docs/cli.md.
package main

import (
	"context"
	"os"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), cli.Own()))
}
