package host

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// entry is an act in the record.
type entry struct {
	c       sandboxmcp.Caller
	action  string
	detail  string
	request sandboxmcp.RequestID
	exit    *int
	took    time.Duration
}

// intent records what is about to be done. What cannot be recorded is not done.
func (h *Host) intent(ctx context.Context, e entry, more map[string]any) error {
	_, err := h.cfg.Audit.Append(ctx, sandboxmcp.AuditEntry{
		Action: e.action, Phase: sandboxmcp.PhaseIntent, Namespace: e.c.Namespace, Actor: e.c.Actor, RequestID: e.request, Detail: e.detail, Metadata: more,
	})
	return err
}

// outcome records what was done, and returns failed, or that it could not be recorded.
func (h *Host) outcome(ctx context.Context, e entry, more map[string]any, failed error, success bool) error {
	success = success && failed == nil
	if failed != nil {
		more["error"] = string(sandboxmcp.CodeOf(failed))
	}
	ms := float64(e.took) / float64(time.Millisecond)
	a := sandboxmcp.AuditEntry{
		Action: e.action, Phase: sandboxmcp.PhaseOutcome, Namespace: e.c.Namespace, Actor: e.c.Actor, RequestID: e.request, Detail: e.detail, Metadata: more, Success: &success, ExitCode: e.exit,
	}
	if e.took > 0 {
		a.DurationMS = &ms
	}
	_, err := h.cfg.Audit.Append(context.WithoutCancel(ctx), a)
	if failed != nil {
		return failed
	}
	return err
}

// refused records an act that was refused, and returns its error.
func (h *Host) refused(ctx context.Context, c sandboxmcp.Caller, action, detail string, why error) error {
	return h.outcome(ctx, entry{c: c, action: action, detail: detail}, map[string]any{}, why, false)
}
