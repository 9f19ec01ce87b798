package sandboxmcp

import (
	"encoding/json"
	"io"
	"time"
)

// SessionStatus is the state of a session.
type SessionStatus string

// The states of a session.
const (
	SessionIdle    SessionStatus = "idle"    // ready for a run
	SessionActive  SessionStatus = "active"  // executing a run
	SessionExpired SessionStatus = "expired" // ended within the last 24 h
)

// SessionSpec describes a session to make. The zero value of a field is its default.
type SessionSpec struct {
	ID       SessionID     `json:"session_id,omitempty"` // chosen by the caller; empty: the engine makes one
	Language Language      `json:"language,omitempty"`
	Limits   Limits        `json:"limits,omitzero"`
	Strict   bool          `json:"strict,omitempty"` // refuse a limit above its ceiling instead of clamping it
	Modest   bool          `json:"modest,omitempty"` // see Request
	TTL      time.Duration `json:"ttl_ns,omitempty"` // lifetime without use; 0: the configured one
	Backend  string        `json:"backend,omitempty"`
	Fresh    bool          `json:"fresh,omitempty"`   // each run has a new interpreter: files are kept, variables are not
	Offline  bool          `json:"offline,omitempty"` // runs have no network, even if domains are open
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
	Interpreters []Language    `json:"interpreters"`      // languages whose interpreter runs and keeps its state
	Owner        string        `json:"owner"`             // the server that runs it
	Clamped      []string      `json:"clamped,omitempty"` // limits that were lowered to their ceilings; only in the answer of CreateSession
}

// MarshalJSON encodes the id as both id and session_id.
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
	DownloadURL *string `json:"download_url"`   // nil: no HTTP server serves it
	SHA256      string  `json:"sha256"`         // may be empty in a list, if this file or all files together are too large to hash
	More        bool    `json:"more,omitempty"` // of the last file of a list: the directory has more than a list names
}

// EntryType is the kind of an entry of a directory.
type EntryType string

// The kinds of a [SessionEntry].
const (
	EntryFile      EntryType = "file"
	EntryDirectory EntryType = "directory"
	EntryLink      EntryType = "link"
	EntryOther     EntryType = "other" // such as a FIFO
)

// SessionEntry is an entry of a session's working directory.
type SessionEntry struct {
	Path      string    `json:"path"` // absolute, below /mnt/data
	Type      EntryType `json:"type"`
	SizeBytes int64     `json:"size_bytes"` // of a regular file
}

// Upload is a file to store in a session.
type Upload struct {
	SessionID SessionID    // empty: make a session
	Session   *SessionSpec // how to make a session, also if SessionID does not exist; nil: with defaults, and only if SessionID is empty
	Name      string       // a path below /mnt/data, or relative to it
	Content   []byte
	Body      io.Reader // the content, instead of Content; nil: use Content
	Size      int64     // bytes of Body; 0 and -1: unknown
	Overwrite bool
}

// Bridge passes values from one session to another, or stores them for the namespace.
type Bridge struct {
	Data map[string]json.RawMessage `json:"data"` // the values; nil: take those of From
	From SessionID                  `json:"from_session,omitempty"`
	To   SessionID                  `json:"to_session,omitempty"` // empty: store them in the namespace
	Keys []string                   `json:"keys,omitempty"`       // keys to take from From; empty: all
}

// Bridged is the result of a [Bridge].
type Bridged struct {
	Bridged bool                       `json:"bridged"`
	Data    map[string]json.RawMessage `json:"data"`
	Keys    []string                   `json:"keys"`
	Bytes   int64                      `json:"bytes"`
	Note    string                     `json:"note,omitempty"` // what helps if there were no values
}

// State is the state of a namespace, or of one of its sessions.
type State struct {
	Namespace Namespace      `json:"namespace"`
	VaultKeys []string       `json:"vault_keys"`
	Sessions  []Session      `json:"sessions"`
	Env       map[string]any `json:"env"`
	Limits    Limits         `json:"limits"`
	Egress    EgressState    `json:"egress"`
	Files     []SessionFile  `json:"files"`
}

// EgressState has the open domains of a namespace, and the pending questions.
type EgressState struct {
	Allowed []string   `json:"allowed"`
	Pending []Approval `json:"pending"`
}
