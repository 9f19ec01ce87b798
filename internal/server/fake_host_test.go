package server_test

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// ExecHost answers as if nothing were there.
func (f *fake) ExecHost(_ context.Context, c sandboxmcp.Caller, _ sandboxmcp.HostCommand) (sandboxmcp.HostOutput, error) {
	return sandboxmcp.HostOutput{}, stranger(c)
}

// RequestHostAccess asks the only question of the gate.
func (f *fake) RequestHostAccess(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.HostAsk) (sandboxmcp.AccessAnswer, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	a, err := f.request(ctx, sandboxmcp.EgressAsk{Domain: ask.Pattern, Reason: ask.Reason, Wait: ask.Wait})
	a.Subject = sandboxmcp.Subject{Pattern: a.Domain}
	return a, err
}

// DecideHostAccess answers the question of the gate.
func (f *fake) DecideHostAccess(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	a, err := f.DecideEgress(ctx, c, d)
	a.Subject = sandboxmcp.Subject{Pattern: a.Domain}
	return a, err
}

// RevokeHostAccess answers as if nothing were there.
func (f *fake) RevokeHostAccess(_ context.Context, c sandboxmcp.Caller, _ string) (sandboxmcp.AccessRevoked, error) {
	return sandboxmcp.AccessRevoked{}, stranger(c)
}

// HostAccess lists the question of the gate, if it is pending.
func (f *fake) HostAccess(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.HostAccess, error) {
	pending := []sandboxmcp.HostApproval{}
	if len(f.asksSoFar()) > 0 {
		if a, err := f.FindApproval(ctx, c, question); err == nil && a.Status == sandboxmcp.ApprovalPending {
			a.Subject = sandboxmcp.Subject{Pattern: "restart \u202e" + a.Domain}
			pending = append(pending, sandboxmcp.HostApproval{Approval: a, Warning: "it executes others"})
		}
	}
	return sandboxmcp.HostAccess{Allowed: []string{}, Approved: []sandboxmcp.AccessGrant{}, Blocked: []string{}, Pending: pending}, stranger(c)
}

// ReadHostFile answers as if nothing were there.
func (f *fake) ReadHostFile(_ context.Context, c sandboxmcp.Caller, _ sandboxmcp.HostRead) (sandboxmcp.HostContent, error) {
	return sandboxmcp.HostContent{}, stranger(c)
}

// WriteHostFile answers as if nothing were there.
func (f *fake) WriteHostFile(_ context.Context, c sandboxmcp.Caller, _ sandboxmcp.HostWrite) (sandboxmcp.HostWritten, error) {
	return sandboxmcp.HostWritten{}, stranger(c)
}

// ListHostFiles answers as if nothing were there.
func (f *fake) ListHostFiles(_ context.Context, c sandboxmcp.Caller, _ string) (sandboxmcp.HostListing, error) {
	return sandboxmcp.HostListing{Entries: []sandboxmcp.HostEntry{}}, stranger(c)
}

// CopyHostFile answers as if nothing were there.
func (f *fake) CopyHostFile(_ context.Context, c sandboxmcp.Caller, _ sandboxmcp.HostCopy) (sandboxmcp.HostCopied, error) {
	return sandboxmcp.HostCopied{}, stranger(c)
}
