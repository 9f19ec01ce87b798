package sandboxmcp

import (
	"io"
	"time"
)

// Display says where the value of the bare expression goes that a program of Python
// or Node.js ends with: not of an ES module of Node.js outside of a session, nor of a
// program there that imports.
type Display string

// The zero Display is [DisplayNone].
const (
	DisplayNone    Display = ""        // nowhere: the plain interpreter
	DisplayStdout  Display = "stdout"  // its text to stdout, as a REPL prints it; rich forms to results
	DisplayResults Display = "results" // to results only; what sessions do
)

// Request asks for one execution. The zero value of a field is its default.
type Request struct {
	ID        RequestID         `json:"request_id,omitempty"`   // made by the engine when empty
	Code      string            `json:"code"`                   // UTF-8, at most max_code_bytes
	Language  Language          `json:"language,omitempty"`     // empty: python
	FileName  string            `json:"file_name,omitempty"`    // base name that the program sees as its own; empty: main with the language's extension
	Stdin     []byte            `json:"stdin_base64,omitempty"` // what the program reads; nil: end of file at once
	Env       map[string]string `json:"env,omitempty"`          // added to the environment that the sandbox builds; names that steer a loader or interpreter are refused. A value of SecretRef and a key is that secret's
	NoSecrets bool              `json:"no_secrets,omitempty"`   // the program gets no secret of the namespace, whatever vault_inject says
	Limits    Limits            `json:"limits,omitzero"`        // 0: default
	Strict    bool              `json:"strict,omitempty"`       // a limit above its ceiling is refused with limit_exceeds_cap, not clamped
	Modest    bool              `json:"modest,omitempty"`       // Limits are settings and no wish of the caller: a lower one that the namespace, or the session, keeps goes before
	Backend   string            `json:"backend,omitempty"`      // empty: the configured one
	Display   Display           `json:"display,omitempty"`
	SessionID SessionID         `json:"session_id,omitempty"` // a sandbox that stays, made when it is not there; empty: a fresh one, destroyed after the run
	Session   *SessionSpec      `json:"session,omitempty"`    // how it is made when SessionID is empty or not there; nil: as the request says
	Stdout    io.Writer         `json:"-"`                    // receives the program's stdout while it runs, up to max_output_bytes; may be nil. Errors are ignored
	Stderr    io.Writer         `json:"-"`                    // likewise
	Shown     ResultWriter      `json:"-"`                    // receives what the program shows while it runs, in order, as it will stand in Results; may be nil

	// AllowedDomains are the domains that this run may reach, as [ParseDomain]
	// reads them, and no others; nil: what is open to its namespace. They can only
	// narrow that, and a domain that is not open fails with egress_denied, unless
	// GrantDomains says that the caller is who may open them: then they are open to
	// this run, and the record says so.
	AllowedDomains []string      `json:"allowed_domains"`
	GrantDomains   bool          `json:"grant_domains,omitempty"`
	Offline        bool          `json:"offline,omitempty"` // no network, whatever is open
	Hold           time.Duration `json:"hold_ns,omitempty"` // how long a connection to a name that is not open waits for a person; 0: as the settings say
}

// ResultWriter takes rich results one by one. It is called from one goroutine,
// and the result is its own to keep. However slow it is, the program does not
// wait for it; the answer does, as it waits for the writers of the streams.
type ResultWriter interface {
	WriteResult(r RichResult)
}
