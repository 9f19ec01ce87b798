package server

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Told holds the settings in force that models are told: in the instructions, the descriptions
// of tools, and the defaults in their schemas.
type Told struct {
	Limits    sandboxmcp.Limits // limits of a run whose call names none; zero fields: the product's defaults
	Ceilings  sandboxmcp.Limits // the most that a call may ask for; zero fields: the product's ceilings
	Hosts     []string          // domains that are open by the settings
	NoAsking  bool              // no person can open further domains
	NoSecrets bool              // programs get no secrets as variables
	NoInstall bool              // packages cannot be installed
	AskPkg    bool              // a person has to approve packages before they are installed
	Host      bool              // host tools are on, so that files of the user's disk can be written
	// Packages returns the names of the packages that Python programs can import besides their
	// own library. It is called for each client that connects. Nil: models are not told.
	Packages func(ctx context.Context) ([]string, error)
}

// facts is what the texts of a server are made from.
type facts struct {
	Told

	five  Five
	links bool // files may have a download_url
	only5 bool // the server has the five tools alone
	how   sandboxmcp.Invocation
	offer
}

func newFacts(t Told, f Five, links, only5 bool) facts {
	t.Limits = t.Limits.Over(sandboxmcp.DefaultLimits())
	t.Ceilings = t.Ceilings.Over(sandboxmcp.DefaultCeilings(1))
	f = f.filled()
	f.TTL = cmp.Or(f.TTL, 30*time.Minute)
	return facts{Told: t, five: f, links: links, only5: only5}
}

// life says how long a session lives without use.
func (f facts) life() string { return digits(f.five.TTL.Minutes()) + " minutes" }

// size writes a number of bytes in the largest unit that holds it exactly.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return strconv.FormatInt(bytes>>20, 10) + " MiB"
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return strconv.FormatInt(bytes>>10, 10) + " KiB"
	}
	return strconv.FormatInt(bytes, 10) + " bytes"
}

// limitsText lists limits in words.
func limitsText(l sandboxmcp.Limits) string {
	return fmt.Sprintf("%s s, %d MiB, %s cores, %d processes, %d bytes per stream", digits(l.TimeoutSeconds), l.MaxRAMMB, digits(l.MaxCPUCores), l.MaxProcesses, l.MaxOutputBytes)
}

// packagesWithin is how long the first answer waits for the names of packages. To find them
// may start an interpreter.
const packagesWithin = 100 * time.Millisecond

// instruct sets the instructions in an answer that has them.
func (f facts) instruct(ctx context.Context, res mcp.Result) {
	var text *string
	switch r := res.(type) {
	case *mcp.InitializeResult:
		text = &r.Instructions
	case *mcp.DiscoverResult:
		text = &r.Instructions
	default:
		return
	}
	if f.Packages == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, packagesWithin)
	defer cancel()
	names, err := f.Packages(ctx)
	*text = f.instructions(f.packages(names, err == nil))
}
