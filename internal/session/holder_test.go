package session_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestACallerWithSeveralNamespacesLeavesPlaces: a caller cannot take the places that are kept for others by naming another
// of its namespaces that has no session yet.
func TestACallerWithSeveralNamespacesLeavesPlaces(t *testing.T) {
	k := newKit(t, t.TempDir(), 4)
	known := []sandboxmcp.Namespace{"a0", "a1", "a2", "a3", "b"}
	k.SetBounds(4, known, nil)
	claim := func(ns, holder string) error {
		in := info("one")
		in.Namespace = sandboxmcp.Namespace(ns)
		s, _, err := k.Claim(t.Context(), holder, in, time.Hour, false)
		if err == nil {
			err = s.Furnish(t.Context(), &room{}, in)
		}
		return err
	}
	made := 0
	for i := range 4 {
		switch err := claim("a"+strconv.Itoa(i), "key 1"); {
		case err == nil:
			made++
		case sandboxmcp.CodeOf(err) != sandboxmcp.CodeMaxSessions:
			t.Fatal(err)
		}
	}
	if made != 2 {
		t.Errorf("the caller has %d sessions of 4, want half of them", made)
	}
	if err := claim("b", ""); err != nil {
		t.Errorf("the first session of another caller: got %v, want it", err)
	}
	k.SetBounds(4, known, map[sandboxmcp.Namespace]string{"a0": "key 1", "a1": "key 1", "a2": "key 1", "a3": "key 1"})
	if err := claim("a2", "key 1"); err != nil {
		t.Errorf("a further session of a caller who alone holds the namespaces without one: got %v, want it", err)
	}
}
