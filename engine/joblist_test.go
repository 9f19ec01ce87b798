package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// listed returns the background runs of a namespace as "id status".
func listed(t *testing.T, e *engine.Engine, ns sandboxmcp.Namespace) []string {
	t.Helper()
	all, err := e.Jobs(t.Context(), of(ns))
	if err != nil {
		t.Fatalf("jobs of %s: got %v, want nil", ns, err)
	}
	var out []string
	for _, j := range all {
		if ended := j.EndedAt != nil; ended == (j.Status == sandboxmcp.JobQueued || j.Status == sandboxmcp.JobRunning) {
			t.Errorf("got %+v, want an end exactly if it has ended", j)
		}
		out = append(out, string(j.ID)+" "+string(j.Status))
	}
	return out
}

// TestJobsAreListed: background runs are listed from their start to after their end, those of the
// own namespace alone, and with how they ended.
func TestJobsAreListed(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	first := string(start(t, e, "a", "first").RequestID)
	eventually(t, "the first runs", func() bool { return len(g.order.list()) == 1 })
	second, other := string(start(t, e, "a", "second").RequestID), string(start(t, e, "b", "other").RequestID)
	want := []string{second + " queued", first + " running"}
	if d := cmp.Diff(want, listed(t, e, "a")); d != "" {
		t.Errorf("while the first runs (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{other + " queued"}, listed(t, e, "b")); d != "" {
		t.Errorf("of another namespace (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{other + " queued", second + " queued", first + " running"}, listed(t, e, sandboxmcp.EveryNamespace)); d != "" {
		t.Errorf("of all namespaces (-want +got):\n%s", d)
	}
	if err := e.Cancel(t.Context(), of("a"), sandboxmcp.RequestID(second)); err != nil {
		t.Fatal(err)
	}
	g.next <- struct{}{}
	lookup(t, e, sandboxmcp.Lookup{RequestID: sandboxmcp.RequestID(first), Wait: 10 * time.Second}, of("a"))
	eventually(t, "the second has ended", func() bool { return listed(t, e, "a")[0] == second+" error" })
	want = []string{second + " error", first + " completed"}
	if d := cmp.Diff(want, listed(t, e, "a")); d != "" {
		t.Errorf("after their ends (-want +got):\n%s", d)
	}
}
