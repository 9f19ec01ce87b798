package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

func (h *handler) Audit(_ context.Context, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	h.note(q)
	if q.Limit > 1000 {
		return sandboxmcp.AuditPage{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "limit is %d", q.Limit)
	}
	return sandboxmcp.AuditPage{Entries: []sandboxmcp.AuditEntry{{Seq: 7, Action: "execute", Metadata: map[string]any{}}}, Total: 9, Head: sandboxmcp.AuditHead{Size: 3, Root: "r"}}, nil
}

func (*handler) VerifyAudit(context.Context) (sandboxmcp.AuditReport, error) {
	return sandboxmcp.AuditReport{Entries: 9, Faults: []sandboxmcp.AuditFault{{Kind: "edited", Seq: 4, Row: 5}}}, nil
}

func (*handler) AuditInMemory() bool { return true }

// TestAuditCalls: a query arrives as it was asked, and what comes back is whole.
func TestAuditCalls(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	if !c.Peer().AuditInMemory {
		t.Error("the server does not say that its record is in memory")
	}
	for _, q := range []sandboxmcp.AuditQuery{
		{Namespace: "default"},
		{Namespace: "team", Action: "a&b=c", Since: time.Date(2031, 1, 2, 3, 4, 5, 6, time.UTC), After: 12, Limit: 3, OldestFirst: true},
	} {
		page, err := c.Audit(t.Context(), q)
		if err != nil || page.Total != 9 || page.Head.Size != 3 || len(page.Entries) != 1 || page.Entries[0].Seq != 7 {
			t.Errorf("%+v: got %+v and %v", q, page, err)
		}
		if d := cmp.Diff(q, h.asked()); d != "" {
			t.Errorf("the query (-want +got):\n%s", d)
		}
	}
	for _, q := range []sandboxmcp.AuditQuery{{Namespace: "no such/name"}, {Namespace: "default", Limit: 1001}} {
		if _, err := c.Audit(t.Context(), q); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%+v: got %v, want invalid_argument", q, err)
		}
	}
	rep, err := c.VerifyAudit(t.Context())
	if err != nil || rep.OK || rep.Entries != 9 || len(rep.Faults) != 1 || rep.Faults[0].Row != 5 {
		t.Errorf("verify: got %+v and %v", rep, err)
	}
}
