package engine_test

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestTheRecordNamesManyPackagesOnce: packages that are known are installed in milliseconds. If each entry of the record named
// all of them, a caller would fill the disk with entries that are kept for good.
func TestTheRecordNamesManyPackagesOnce(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	ask := sandboxmcp.InstallAsk{Language: sandboxmcp.Python}
	for i := range 21 {
		name := fmt.Sprintf("many%d", i)
		x.files[name+"-1.0-py3-none-any.whl"] = wheel(t, name, "1.0", "", "says = 1\n")
		ask.Packages = append(ask.Packages, name)
	}
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	one, two := of("one"), of("two")
	install(t, e, ask, one)
	install(t, e, ask, one)
	install(t, e, ask, two)
	entries := func(who sandboxmcp.Caller) (all []map[string]any) {
		page, err := e.Audit(t.Context(), who, sandboxmcp.AuditQuery{Action: "install_package", OldestFirst: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			if entry.Phase == sandboxmcp.PhaseOutcome {
				all = append(all, entry.Metadata)
			}
		}
		return all
	}
	first, second := entries(one), entries(two)
	if len(first) != 2 || len(second) != 1 {
		t.Fatalf("got %d and %d entries, want 2 and 1", len(first), len(second))
	}
	named := func(m map[string]any) int { list, _ := m["packages"].([]any); return len(list) }
	if named(first[0]) != 21 || named(second[0]) != 21 {
		t.Errorf("got %d and %d packages in the first entry of each namespace, want 21", named(first[0]), named(second[0]))
	}
	if m := first[1]; m["packages"] != nil || fmt.Sprint(m["packages_total"]) != "21" || m["tree"] == nil || m["tree"] != first[0]["tree"] {
		t.Errorf("got %v in the second entry, want the tree and the number of its packages", m)
	}
}
