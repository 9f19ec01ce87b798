package server

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestOneNamespaceDoesNotTakeAllWatches: a watch lasts as long as its run, also if its client has
// gone.
func TestOneNamespaceDoesNotTakeAllWatches(t *testing.T) {
	var w watches
	id := func(ns string, n int) sandboxmcp.RequestID { return sandboxmcp.RequestID(fmt.Sprintf("%s-%d", ns, n)) }
	for n := range 2 * maxWatches {
		w.begin("greedy", id("greedy", n))
	}
	if !w.begin("other", id("other", 0)) {
		t.Errorf("a namespace without a watch got no place; another has %d", len(w.runs))
	}
	for n := range 2 * maxWatches {
		w.end(id("greedy", n))
	}
	w.end(id("other", 0))
	w.end(id("other", 0))
	if len(w.runs) != 0 || len(w.each) != 0 {
		t.Errorf("%d runs of %d namespaces are left, want none", len(w.runs), len(w.each))
	}
	for n := range maxWatches / 2 {
		if !w.begin("greedy", id("greedy", n)) {
			t.Fatalf("the run %d got no place", n)
		}
	}
	if w.begin("greedy", id("greedy", 0)) {
		t.Error("a run is watched twice")
	}
}
