package engine

import (
	"cmp"

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
// every namespace.
func (e *Engine) decider(c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.Caller, error) {
	if c.Namespace != sandboxmcp.EveryNamespace || d.ID == "" {
		return e.caller(c)
	}
	c.Actor = cmp.Or(c.Actor, e.cfg.Actor)
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
