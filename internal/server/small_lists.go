package server

import (
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// Small answers of tools that list and show. They leave out what is empty, and the walls.

// Characters of a list in a small answer. A longer one is shown as an example of what there is.
const (
	listChars    = 12_000
	exampleChars = 2_000
)

// fitting returns how many of n entries a small answer shows.
func fitting(n int, at func(i int) any) int {
	if fit := within(listChars, n, at); fit == n {
		return n
	}
	return within(exampleChars, n, at)
}

// within returns how many of n entries fit into left characters.
func within(left, n int, at func(i int) any) int {
	for i := range n {
		text, err := encode(at(i))
		if err != nil { // encoding the answer will report it
			return n
		}
		if left -= utf8.RuneCount(text) + 1; left < 0 {
			return i
		}
	}
	return n
}

// smallSession is a session in a small answer.
type smallSession struct {
	ID        sandboxmcp.SessionID     `json:"id"`
	SessionID sandboxmcp.SessionID     `json:"session_id,omitempty"` // same as ID
	Language  sandboxmcp.Language      `json:"language"`
	Status    sandboxmcp.SessionStatus `json:"status"`
	ExpiresAt time.Time                `json:"expires_at"`
	Limits    *sandboxmcp.Limits       `json:"resource_limits,omitempty"`
	Clamped   []string                 `json:"clamped,omitempty"`
	Isolation any                      `json:"isolation,omitempty"` // a short text
}

// smallCreated is the small answer of create_session.
func smallCreated(x sandboxmcp.Session) smallSession {
	return smallSession{x.ID, x.ID, x.Language, x.Status, x.ExpiresAt.Truncate(time.Second), &x.Limits, x.Clamped, weakness(x.Isolation)}
}

// smallState is the small answer of inspect_state.
type smallState struct {
	VaultKeys    []string          `json:"vault_keys"`
	Sessions     []smallSession    `json:"sessions,omitempty"`
	MoreSessions int               `json:"more_sessions,omitempty"`
	Env          map[string]any    `json:"env,omitempty"` // of a session
	Limits       sandboxmcp.Limits `json:"limits"`
	Egress       any               `json:"egress,omitempty"`
	Files        []smallPythonFile `json:"files,omitempty"`
	MoreFiles    int               `json:"more_files,omitempty"`
	AtLeast      bool              `json:"more_files_at_least,omitempty"` // there are more, which were not counted
}

// shownState is the small answer for a state, with the files of a session if one was named.
func shownState(st sandboxmcp.State, named bool) smallState {
	small := smallState{VaultKeys: some(st.VaultKeys), Limits: st.Limits}
	for _, x := range st.Sessions {
		small.Sessions = append(small.Sessions, smallSession{ID: x.ID, Language: x.Language, Status: x.Status, ExpiresAt: x.ExpiresAt.Truncate(time.Second)})
	}
	n := fitting(len(small.Sessions), func(i int) any { return small.Sessions[i] })
	small.MoreSessions, small.Sessions = len(small.Sessions)-n, small.Sessions[:n]
	if len(st.Egress.Allowed)+len(st.Egress.Pending) > 0 {
		small.Egress = st.Egress
	}
	if named {
		small.Env = st.Env
		small.Files, small.MoreFiles, small.AtLeast = smallFiles(st.Files)
	}
	return small
}

// smallFiles returns files without their hashes, as many as fit, and how many do not. atLeast: there
// are more, which were not counted.
func smallFiles(list []sandboxmcp.SessionFile) (files []smallPythonFile, more int, atLeast bool) {
	files = make([]smallPythonFile, 0, len(list))
	for _, f := range list {
		files = append(files, smallPythonFile{f.Path, f.Filename, f.SizeBytes, f.MIMEType, f.DownloadURL})
		atLeast = atLeast || f.More
	}
	n := fitting(len(files), func(i int) any { return files[i] })
	return files[:n], len(files) - n, atLeast
}

// smallRuntime is a language in a small answer of list_runtimes.
type smallRuntime struct {
	Language  sandboxmcp.Language `json:"language"`
	Available bool                `json:"available"`
	Version   string              `json:"version,omitempty"`
	Packages  []string            `json:"packages_preloaded,omitempty"`
	Hint      string              `json:"hint,omitempty"`
}

// smallBackend is a backend in a small answer of list_runtimes.
type smallBackend struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Isolation any    `json:"isolation,omitempty"` // its tier, and what is weak
}

// smallRuntimes is the small answer of list_runtimes.
type smallRuntimes struct {
	Runtimes []smallRuntime `json:"runtimes"`
	Backends []smallBackend `json:"backends"`
	Notes    []string       `json:"notes,omitempty"`
}

func shownRuntimes(r sandboxmcp.Runtimes, notes []string) smallRuntimes {
	small := smallRuntimes{Runtimes: []smallRuntime{}, Backends: []smallBackend{}, Notes: notes}
	for _, l := range r.Runtimes {
		small.Runtimes = append(small.Runtimes, smallRuntime{l.Language, l.Available, l.Version, l.PackagesPreloaded, l.Hint})
	}
	for _, b := range r.Backends {
		s := smallBackend{Name: b.Name, Available: b.Available, Reason: b.Reason}
		if i := b.Isolation; i != nil {
			s.Isolation = struct {
				Tier sandboxmcp.Tier `json:"tier"`
				Weak []string        `json:"weak,omitempty"`
			}{i.Tier, i.Weak}
		}
		small.Backends = append(small.Backends, s)
	}
	return small
}
