package note

import (
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
)

// index explains that a program, mostly pip or npm, cannot reach a package index; empty: it tried
// no index, or packages cannot be installed.
func (r *Run) index() string {
	i := slices.IndexFunc(r.Result.Network.Denied, func(d sandboxmcp.DeniedRequest) bool { return slices.Contains(r.Indexes, d.Host) })
	if i < 0 || !r.Installs {
		return ""
	}
	how := "`packages`"
	switch {
	case r.Reader == sandboxmcp.ReaderTerminal:
		how = "`sandboxmcp install`"
	case r.Reader == sandboxmcp.ReaderREST:
		how = "POST /install or `packages`"
	case r.Reader == sandboxmcp.ReaderPython && !r.Has("install_package"):
		return ""
	case r.Reader == sandboxmcp.ReaderPython:
		how = "install_package with this session_id"
	case r.Has("install_package"):
		how = "install_package or `packages`"
	}
	return "No connection to " + r.Result.Network.Denied[i].Host + ". Packages are installed by " + how + "; no domain is needed."
}

// noNetwork explains that a run has no network, not even to open domains; empty: it may have one.
func (r *Run) noNetwork() string {
	denied := r.Result.Network.Denied
	if !r.Offline || len(denied) == 0 {
		return ""
	}
	host := denied[0].Host
	if _, err := sandboxmcp.ParseHost(host); err != nil { // the program chose these characters
		host = sandboxmcp.Quote(host)
	}
	how := "This run has no network, even to open domains."
	switch {
	case !r.Has("execute_code"):
	case r.OfflineSession:
		how = "This session has no network, even to open domains: use execute_code with another session_id."
	case r.Reader == sandboxmcp.ReaderPython:
		how = "Runs of sandbox_run_python have no network, even to open domains: run it by execute_code with this session_id."
	}
	return "No connection to " + host + ". " + how
}
