package engine

import (
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// noteOf returns the note of a result that is complete but for its signatures.
func (e *Engine) noteOf(x *execution, res *sandboxmcp.Result) string {
	n := note.Run{
		Audience: note.For(&x.req), Result: res, Limits: x.limits, Ceilings: e.limits.Ceilings().Under(e.cfg.Most[x.req.Backend]),
		Session: x.session != nil, Keeps: x.live != nil && !x.live.Fresh(), Open: len(x.network.Open()),
		Offline: e.networkRequest(x).Offline, NoAsking: e.settings().NoAsking, SecretFiles: x.secrets.KeptBack(),
		Installs: e.settings().Packages != string(packages.Deny),
		Gone:     x.gone || x.session != nil && x.session.Gone(), Anonymous: session.IsMade(x.req.SessionID), Files: x.files,
	}
	n.OfflineSession = x.newborn && x.req.Session.Offline || x.live != nil && x.live.offline
	if !res.Success {
		n.Source = x.source(res)
	}
	if len(res.Network.Denied) > 0 {
		n.Indexes = e.packages.IndexHosts()
	}
	if x.another {
		n.Another = x.req.Language
	}
	if res.Error != nil && res.Error.Name == note.MissingKey {
		n.Withheld = x.secrets.Withheld()
	}
	if v := note.Variable(res); v != "" && x.secrets.Lacks(v) {
		n.Unset, n.Sealed = v, e.vault.Kind() == vault.Sealed
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
		n.Packages, n.Newer, _ = e.interps.Shown(x.ctx, e.backends[x.req.Backend], x.shows) // without Python there is no such exception
		n.Packages = append(e.installedNames(x), n.Packages...)
	}
	if x.req.Reader == sandboxmcp.ReaderTerminal { // the command knows its own name and settings
		return note.Of(n)
	}
	return e.cfg.Invocation.Paste(note.Of(n))
}

// installedNames lists the Python packages that were installed for a run, its session or its
// namespace.
func (e *Engine) installedNames(x *execution) []string {
	var trees []interpreter.Installed
	if x.live != nil {
		trees = x.live.installed()
	} else {
		trees, _ = e.shownTrees(x) // a note without them is better than none
	}
	var names []string
	for _, t := range trees {
		if t.Language == sandboxmcp.Python {
			names = append(names, t.Names...)
		}
	}
	return names
}

// shows reports whether the sandbox of a run shows a tree. A session shows those that were there
// when it was made.
func (x *execution) shows(t backend.Tree) bool {
	return x.live == nil || slices.Contains(x.live.trees, t)
}

// source returns the program of a run, and where it was rejected. A note may quote a rejected one,
// so that it has no secrets.
func (x *execution) source(res *sandboxmcp.Result) note.Source {
	s := note.Source{Code: x.req.Code}
	if res.Status != sandboxmcp.StatusRejected {
		return s
	}
	s.Code = x.secrets.Masker().Text(s.Code)
	if v, ok := res.Metadata["validation"].(map[string]any); ok {
		if issues, ok := v["issues"].([]map[string]any); ok && len(issues) > 0 {
			s.Line, _ = issues[0]["line"].(int)
			s.Col, _ = issues[0]["col"].(int)
		}
	}
	return s
}
