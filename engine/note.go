package engine

import (
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
)

// noteOf returns the note of a result that is complete but for its signatures.
func (e *Engine) noteOf(x *execution, res *sandboxmcp.Result) string {
	n := note.Run{
		Result: res, Limits: x.limits, Ceilings: e.cfg.Ceilings,
		Session: x.session != nil, Keeps: x.live != nil && !x.live.Fresh(), Open: len(x.network.Open()),
	}
	if res.SessionCreated {
		for _, s := range e.sessions.List(x.who.Namespace) {
			if s.ID != x.req.SessionID {
				n.Others = append(n.Others, s.ID)
			}
		}
		slices.Sort(n.Others)
	}
	if res.Error != nil && res.Error.Name == note.MissingModule {
		n.Packages = e.interps.Names(x.ctx, e.backends[x.req.Backend])
	}
	return note.Of(n)
}
