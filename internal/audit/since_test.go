package audit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestSince: each entry of an action is read once. An entry that a writer of the database has added behind the end and removed
// again keeps no later entry from being read.
func TestSince(t *testing.T) {
	r := openSealed(t, filepath.Join(t.TempDir(), "state"))
	defer r.close(t)
	var at audit.Place
	var got []string
	read := func(want ...string) {
		t.Helper()
		var err error
		got = nil
		at, err = r.l.Since(t.Context(), r.s.DB(), "approval", at, func(request, _ string) { got = append(got, request) })
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	add := func(ns sandboxmcp.Namespace, request sandboxmcp.RequestID) {
		t.Helper()
		if _, err := r.l.Append(t.Context(), sandboxmcp.AuditEntry{Action: "approval", Phase: sandboxmcp.PhaseOutcome, Namespace: ns, RequestID: request}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	add("a", "r1")
	r.append(t, "a", 2)
	add("b", "r2")
	read("r1", "r2")
	read()
	r.append(t, "a", 1)
	read()
	add("a", "r3")
	read("r3")
	const far = `INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, metadata, prev, hash, mac)
		SELECT 1000000000000000, id || '1', 'far', 1, timestamp, action, phase, 'far', session_id, language, detail, actor, metadata, prev, hash, mac FROM audit WHERE request_id = 'r3'`
	storetest.Tamper(t, r.dir, far)
	read("far")
	storetest.Tamper(t, r.dir, `DELETE FROM audit WHERE namespace = 'far'`)
	add("b", "r4")
	storetest.Tamper(t, r.dir, far)
	read("r4", "far")
	storetest.Tamper(t, r.dir, `DELETE FROM audit WHERE namespace = 'far' OR request_id = 'r4'`)
	read("r1", "r2", "r3") // the entry at the place is gone
}
