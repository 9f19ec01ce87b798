package server_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// A client that sends many small calls and does not read has few of the large answers made,
// and gets all of them when it reads.
func TestLargeAnswersAreMadeAsTheClientReads(t *testing.T) {
	const (
		calls   = 500
		largest = 4      // made at a time
		waiting = 64 + 2 // in the test's client: in its channel, and on the way there
	)
	var made atomic.Int64
	f := newFake()
	f.output["stdout"] = []byte(strings.Repeat("x", 20<<10))
	f.onOutput = func() { made.Add(1) }
	p := legacy(t, f)
	for range calls {
		p.begin("resources/read", map[string]any{"uri": "run://" + runID + "/stdout"})
	}
	testkit.Until(t, fmt.Sprintf("%d answers are made", waiting), func() bool { return made.Load() >= waiting })
	for read := range int64(calls) {
		if got, want := made.Load(), read+waiting+largest; got > want {
			t.Fatalf("%d answers were made when %d had been read, want %d at most", got, read, want)
		}
		if m := p.read(); m["result"] == nil {
			t.Fatalf("a call: got %v, want a result", m)
		}
	}
}
