package sandboxmcp

import (
	"encoding/json"
	"io"
	"time"
)

// SessionStatus says whether a session can be used.
type SessionStatus string

// The states of a session.
const (
	SessionActive  SessionStatus = "active"  // it waits for a run
	SessionBusy    SessionStatus = "busy"    // a run is going
	SessionExpired SessionStatus = "expired" // it is gone, and for 24 h its id says so
)

// SessionSpec asks for a session. The zero value of a field is its default.
type SessionSpec struct {
	ID       SessionID     `json:"session_id,omitempty"` // of the caller's choice; empty: one is made
	Language Language      `json:"language,omitempty"`
	Limits   Limits        `json:"limits,omitzero"`
	Strict   bool          `json:"strict,omitempty"` // a limit above its ceiling is refused, not clamped
	Modest   bool          `json:"modest,omitempty"` // see Request
	TTL      time.Duration `json:"ttl_ns,omitempty"` // how long it lives without being used; 0: the configured one
	Backend  string        `json:"backend,omitempty"`
	Fresh    bool          `json:"fresh,omitempty"`   // each run has an interpreter of its own: files stay, variables do not
	Offline  bool          `json:"offline,omitempty"` // no run in it has a network, whatever is open
}

// Session is a sandbox that lives across requests.
type Session struct {
	ID           SessionID     `json:"id"`
	Language     Language      `json:"language"`
	Backend      string        `json:"backend"`
	Status       SessionStatus `json:"status"`
	CreatedAt    time.Time     `json:"created_at"`
	LastActivity time.Time     `json:"last_activity"`
	ExpiresAt    time.Time     `json:"expires_at"`
	Limits       Limits        `json:"resource_limits"`
	Namespace    Namespace     `json:"namespace"`
	Isolation    *Isolation    `json:"isolation"`
	Owner        string        `json:"owner"`             // the server that has it
	Clamped      []string      `json:"clamped,omitempty"` // the limits that were above their ceilings and lowered when it was made; told then only
}

// MarshalJSON gives the id under both of its names.
func (s Session) MarshalJSON() ([]byte, error) {
	type plain Session
	return json.Marshal(struct {
		plain
		SessionID SessionID `json:"session_id"`
	}{plain(s), s.ID})
}

// SessionFile is a regular file directly in a session's working directory.
type SessionFile struct {
	Path        string  `json:"path"`     // absolute, below /mnt/data
	Filename    string  `json:"filename"` // its last part
	SizeBytes   int64   `json:"size_bytes"`
	MIMEType    string  `json:"mime_type"`
	DownloadURL *string `json:"download_url"` // nil when no server hands it out
	SHA256      string  `json:"sha256"`       // empty in a list where it, or all files together, are too large to look into
}

// Upload asks for a file to be put into a session.
type Upload struct {
	SessionID SessionID    // empty: a session is made
	Session   *SessionSpec // how it is made, also when SessionID is not there; nil: with every default, and only when SessionID is empty
	Name      string       // a path below /mnt/data, or relative to it
	Content   []byte
	Body      io.Reader // the content, in place of Content; nil: Content is it
	Size      int64     // bytes of Body; -1: not known
	Overwrite bool
}

// Bridge asks for values to be handed from one session to another, or kept for
// the namespace.
type Bridge struct {
	Data map[string]json.RawMessage `json:"data"` // the values; nil: they come from From
	From SessionID                  `json:"from_session,omitempty"`
	To   SessionID                  `json:"to_session,omitempty"` // empty: they stay in the namespace
	Keys []string                   `json:"keys,omitempty"`       // of From; empty: all
}

// Bridged is what was handed over.
type Bridged struct {
	Bridged bool                       `json:"bridged"`
	Data    map[string]json.RawMessage `json:"data"`
	Keys    []string                   `json:"keys"`
	Bytes   int64                      `json:"bytes"`
}

// State is what a namespace, or one session of it, has.
type State struct {
	Namespace Namespace      `json:"namespace"`
	VaultKeys []string       `json:"vault_keys"`
	Sessions  []Session      `json:"sessions"`
	Env       map[string]any `json:"env"`
	Limits    Limits         `json:"limits"`
	Egress    EgressState    `json:"egress"`
	Files     []SessionFile  `json:"files"`
}

// EgressState is what is open to a namespace, and what was asked for.
type EgressState struct {
	Allowed []string   `json:"allowed"`
	Pending []Approval `json:"pending"`
}
