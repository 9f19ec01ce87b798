package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// pooling is a backend that keeps something of its dead sandboxes.
type pooling struct{ *fake }

func (pooling) Trim(context.Context) error { return nil }

func (pooling) Pool() map[string]int { return map[string]int{"cgroups": 2, "network_namespaces": 3} }

// TestStatsTellWhatIsKept: the figures show what a backend keeps for its next sandboxes.
func TestStatsTellWhatIsKept(t *testing.T) {
	f := &fake{}
	e := open(t, f, func(c *engine.Config) { c.Backends = []backend.Backend{pooling{f}} })
	got := stats(e).Pool
	for kind, want := range map[string]int{"cgroups": 2, "network_namespaces": 3} {
		if diff := cmp.Diff(want, got[kind]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
	if got := stats(open(t, &fake{})).Pool; len(got) > 0 {
		t.Errorf("a backend that keeps nothing is said to keep %v", got)
	}
}
