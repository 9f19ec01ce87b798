package sandboxmcp

import (
	"io"
	"time"
)

// Display says where the value of the last expression of a Python or Node.js program goes.
// Outside of sessions, ES modules and Node.js programs with an import have no such value.
//
// A Python program that uses a well-known module and never imports it gets the module's name
// as a global; metadata.validation.fixes_applied of its result says so. With
// [DisplayFigures] it gets none.
type Display string

// The zero Display is [DisplayNone].
const (
	DisplayNone    Display = ""        // not shown, as by the plain interpreter
	DisplayStdout  Display = "stdout"  // printed on stdout, as by a REPL; rich forms in Results
	DisplayResults Display = "results" // in Results only, as in sessions
	DisplayFigures Display = "figures" // not shown; figures of matplotlib, and what the program displays itself, in Results
)

// ShowsValues reports whether the value of the last expression is shown.
func (d Display) ShowsValues() bool { return d == DisplayStdout || d == DisplayResults }

// Reader says who reads the note of a result, because it names parameters as the reader does.
type Reader string

// The zero Reader is [ReaderTools].
const (
	ReaderTools    Reader = ""         // names the parameters of the tool execute_code
	ReaderREST     Reader = "rest"     // names the fields and routes of the REST API
	ReaderTerminal Reader = "terminal" // names the flags of the command run
	ReaderPython   Reader = "python"   // names none, because the tool sandbox_run_python has none for limits
)

// Request describes one execution. The zero value of a field means its default.
type Request struct {
	ID        RequestID              `json:"request_id,omitempty"`   // empty: the engine makes one
	Code      string                 `json:"code"`                   // UTF-8, at most max_code_bytes
	Language  Language               `json:"language,omitempty"`     // empty: python
	FileName  string                 `json:"file_name,omitempty"`    // base name that the program sees as its own; empty: main with the language's extension
	Stdin     []byte                 `json:"stdin_base64,omitempty"` // standard input; nil: empty
	Env       map[string]string      `json:"env,omitempty"`          // further environment variables; names that change how a loader or interpreter works are refused. The value SecretRef plus a key is replaced by that secret
	NoSecrets bool                   `json:"no_secrets,omitempty"`   // the program gets no secret of the namespace, even if vault_inject says so
	Limits    Limits                 `json:"limits,omitzero"`        // 0: default
	Strict    bool                   `json:"strict,omitempty"`       // a limit above its ceiling is refused with limit_exceeds_cap, not clamped
	Modest    bool                   `json:"modest,omitempty"`       // Limits are operator defaults, not the caller's request: lower limits stored for the namespace or session win
	Backend   string                 `json:"backend,omitempty"`      // empty: the configured one
	Display   Display                `json:"display,omitempty"`
	Reader    Reader                 `json:"reader,omitempty"`
	Unoffered []string               `json:"unoffered,omitempty"`  // tools that the reader cannot call, so that the note does not name them
	SessionID SessionID              `json:"session_id,omitempty"` // session to run in, made if it does not exist; empty: a new sandbox that is destroyed after the run
	Session   *SessionSpec           `json:"session,omitempty"`    // how to make the session if it does not exist; nil: from the request
	Packages  []string               `json:"packages,omitempty"`   // packages that the program can import, as in InstallAsk; in a session later runs can, too
	Note      func(text string)      `json:"-"`                    // gets progress of the installation of Packages, one line at a time; it must not block; may be nil
	Stdout    io.Writer              `json:"-"`                    // gets stdout while the program runs, up to max_output_bytes; may be nil. Errors are ignored
	Stderr    io.Writer              `json:"-"`                    // gets stderr likewise
	Queued    func(place func() int) `json:"-"`                    // called if the request has to wait for its turn, and again if it then waits for kernel tasks, with a function that returns its place in the queue, 0 if it waits no longer; may be nil
	Shown     ResultWriter           `json:"-"`                    // gets the entries of Results while the program runs; may be nil

	// AllowedDomains are the only domains that this run may reach, in the syntax of
	// [ParseDomain]; nil: all domains that are open to its namespace. A domain that is
	// not open fails with egress_denied. With GrantDomains, for callers that may open
	// domains, they are opened for this run, and the audit record says so.
	AllowedDomains []string      `json:"allowed_domains"`
	GrantDomains   bool          `json:"grant_domains,omitempty"`
	Offline        bool          `json:"offline,omitempty"` // no network, even if domains are open
	Hold           time.Duration `json:"hold_ns,omitempty"` // how long a connection to a name that is not open waits for a person; 0: egress_hold_seconds
}

// ResultWriter gets rich results one by one, from one goroutine, and may keep them. A slow
// ResultWriter does not delay the program. The answer waits for it, as it waits for the
// writers of the streams.
type ResultWriter interface {
	WriteResult(r RichResult)
}
