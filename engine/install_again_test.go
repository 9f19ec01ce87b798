package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestTheRecordNamesManyPackagesOnce: packages that are known are installed in milliseconds. If each entry of the record named
// all of them, a caller would fill the disk with entries that are kept for good.
func TestTheRecordNamesManyPackagesOnce(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	ask := twentyOne(t, x)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	one, two := of("one"), of("two")
	install(t, e, ask, one)
	install(t, e, ask, one)
	install(t, e, ask, two)
	first, second := outcomes(t, e, one), outcomes(t, e, two)
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

// twentyOne adds so many packages to an index that not each entry of the record names them, and returns the request for all of them.
func twentyOne(t *testing.T, x *index) sandboxmcp.InstallAsk {
	t.Helper()
	ask := sandboxmcp.InstallAsk{Language: sandboxmcp.Python}
	for i := range 21 {
		name := fmt.Sprintf("many%d", i)
		x.files[name+"-1.0-py3-none-any.whl"] = wheel(t, name, "1.0", "", "says = 1\n")
		ask.Packages = append(ask.Packages, name)
	}
	return ask
}

// outcomes returns what the record has of the installations that have ended, the oldest first.
func outcomes(t *testing.T, e *engine.Engine, who sandboxmcp.Caller) (all []map[string]any) {
	t.Helper()
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

// TestFailedInstallationsNameNoPackagesAgain: a session that shows no more packages refuses known ones in milliseconds. If the
// record named the packages of the next installation again for that, a caller could fill the disk as before. A failed installation
// also is no reason to leave them out.
func TestFailedInstallationsNameNoPackagesAgain(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	ask := twentyOne(t, x)
	e := x.open(t, fixedBackend(t))
	needs(t, e, sandboxmcp.Python)
	into := ask
	into.SessionID = create(t, e, sandboxmcp.SessionSpec{})
	var got []string
	for range 2 {
		_, err := e.Install(t.Context(), sandboxmcp.Caller{}, into)
		asCode(t, err, sandboxmcp.CodeIsolationUnavailable)
		install(t, e, ask, sandboxmcp.Caller{})
	}
	for _, m := range outcomes(t, e, sandboxmcp.Caller{}) {
		list, _ := m["packages"].([]any)
		got = append(got, fmt.Sprintf("%d of %v", len(list), m["packages_total"]))
	}
	if want := []string{"0 of <nil>", "21 of <nil>", "0 of <nil>", "0 of 21"}; !slices.Equal(got, want) {
		t.Errorf("got entries with %q packages, want %q", got, want)
	}
}
