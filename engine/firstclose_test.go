package engine_test

import (
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestFirstThatNeverComes: the engine prepares a sandbox and an interpreter for a first request. Close ends both, at
// any time.
func TestFirstThatNeverComes(t *testing.T) {
	before := backendtest.Count(t)
	r := sandboxmcp.Request{Code: "print(1)", Language: sandboxmcp.Python}
	for i := range 10 {
		e := openReal(t, func(c *engine.Config) { c.First = &r })
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // each round closes at another moment
		if err := e.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	}
	before.Same(t)
}
