package engine

import (
	"cmp"
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// caller fills in the engine's own namespace and actor. It fails with
// invalid_argument for a namespace of the wrong form, and with access_denied for
// EveryNamespace, which only verbs that list accept.
func (e *Engine) caller(c sandboxmcp.Caller) (sandboxmcp.Caller, error) {
	if c.Namespace == sandboxmcp.EveryNamespace {
		return c, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "this acts in one namespace, but all were named").WithHint("name one namespace")
	}
	if c.Actor == "" {
		c.Actor = e.cfg.Actor
	}
	if c.Namespace == "" {
		c.Namespace = e.cfg.Namespace
		return c, nil
	}
	_, err := sandboxmcp.ParseNamespace(string(c.Namespace))
	return c, err
}

// decider is [Engine.caller] for a decision. One with an ID may come from a caller that holds
// every namespace. decider fails with session_not_found if the decision is for a session that is not
// live: its grant would open nothing, also to a later session of the same id.
func (e *Engine) decider(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.Caller, error) {
	if c.Namespace != sandboxmcp.EveryNamespace || d.ID == "" {
		var err error
		if c, err = e.caller(c); err != nil {
			return c, err
		}
	}
	c.Actor = cmp.Or(c.Actor, e.cfg.Actor)
	if d.Scope != sandboxmcp.GrantSession || d.Deny {
		return c, nil
	}
	ns, id := c.Namespace, d.SessionID
	if d.ID != "" {
		a, err := e.FindApproval(ctx, c, d.ID)
		if err != nil || a.Status != sandboxmcp.ApprovalPending {
			return c, nil //nolint:nilerr // the gate has the answer
		}
		ns, id = a.Namespace, cmp.Or(id, a.SessionID)
	}
	if _, err := sandboxmcp.ParseSessionID(string(id)); err != nil {
		return c, err
	}
	if err := e.sessions.Lives(ctx, ns, id); err != nil {
		return c, sandboxmcp.AsError(err).WithHint("name a live session of namespace " + string(ns) + "; see `sandboxmcp session list`")
	}
	return c, nil
}

// listed returns the namespace that a listing verb is restricted to. Empty means all
// namespaces.
func (e *Engine) listed(c sandboxmcp.Caller) sandboxmcp.Namespace {
	if c.Namespace == sandboxmcp.EveryNamespace {
		return ""
	}
	return cmp.Or(c.Namespace, e.cfg.Namespace)
}

var _ sandboxmcp.Service = (*Engine)(nil)
