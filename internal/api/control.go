// Package control is the door by which commands in another terminal reach a
// running server: HTTP/1.1 with JSON over a unix socket in the state directory.
// Only the server's own user and root come in; the kernel says who is asking.
//
// The paths begin with the version of the protocol:
//
//	GET  /v1/hello   → Hello
//	GET  /v1/stats   → sandboxmcp.Stats
//	GET  /v1/queue   → sandboxmcp.QueueStats
//	GET  /v1/request?namespace=&id=&content=  → sandboxmcp.Result
//	POST /v1/cancel  {"namespace", "request_id"} → {"cancelled": request_id}
//
//	POST /v1/execute {"namespace", "code", "language", …} → events, see below
//	POST /v1/start   the same → sandboxmcp.Result with the status running
//
//	GET  /v1/sessions?namespace=              → {"sessions": [sandboxmcp.Session]}
//	GET  /v1/session?namespace=&id=           → sandboxmcp.Session
//	POST /v1/session/create    {"namespace", "session_id", "language", "limits", "ttl_minutes", …} → sandboxmcp.Session
//	POST /v1/session/terminate {"namespace", "session_id"} → {"killed": session_id, "wiped": true}
//	GET  /v1/inspect?namespace=&id=           → sandboxmcp.State
//	POST /v1/bridge  {"namespace", "data", "from_session", "to_session", "keys"} → sandboxmcp.Bridged
//
//	GET  /v1/egress?namespace=                → sandboxmcp.EgressList
//	POST /v1/egress/decide {"id" or "domain", "namespace", "deny", "scope", …} → sandboxmcp.EgressAnswer
//	POST /v1/egress/revoke {"namespace", "domain"} → sandboxmcp.EgressRevoked
//	GET  /v1/audit?namespace=&action=&since=&after=&limit=&oldest_first= → sandboxmcp.AuditPage
//	GET  /v1/audit/verify → sandboxmcp.AuditReport
//
//	GET  /v1/files?namespace=&id=             → {"artifacts": [sandboxmcp.SessionFile]}
//	GET  /v1/file?namespace=&id=&path=&limit= → sandboxmcp.SessionFile and "content_base64"
//	PUT  /v1/file?namespace=&id=&name=&overwrite=  the bytes → {"session_id", "path"}
//	POST /v1/file/remove {"namespace", "session_id", "path"} → {"removed": path}
//
//	POST /v1/limits  {"namespace", "limits", "reset", "strict"} → sandboxmcp.LimitsChanged
//	GET  /v1/events?namespace=                → {"events": [sandboxmcp.Event]}
//	GET  /v1/events/follow?namespace=&recent= → one sandboxmcp.Event a line
//	GET  /v1/vault?namespace=                 → VaultList
//	POST /v1/vault/add    {"namespace", "key", "value" in base64, "ttl_seconds"} → {"added": key}
//	POST /v1/vault/delete {"namespace", "key"} → {"deleted": key}
//
// A request that has not ended is answered with the status running. With
// content=true the files come with what is in them, unless that is more than
// 32 MiB together: then it is left out, and stands in the state directory. It
// is so for the result of execute as well.
//
// Execute answers while the program runs, with one JSON object a line
// (application/x-ndjson): {"stream": "stdout" or "stderr", "data": base64} as
// often as there is something, and at last {"result": sandboxmcp.Result} or
// {"error": error body}. When the caller hangs up, the run is cancelled. What
// was refused before it began is an error like any other.
//
// Who follows the events of a namespace, or of all without one, is answered
// until it hangs up or the server ends. With recent=true it begins with the last
// 256. One that reads too slowly loses the oldest, and each event says how many.
//
// A failure is the error body {"error", "message", "hint"} with the HTTP
// status of its code. A socket bears the mark of its server in its name and is
// put in place only when it answers, so one that refuses belongs to a server
// that died and is removed by whoever finds it.
package api

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	runDir = "run" // below the state directory
	suffix = ".sock"

	maxRequest  = 64 << 10  // bytes of a request's body
	maxProgram  = 160 << 20 // of one that holds a program and what it reads, in base64
	maxBridge   = 16 << 20  // of one that holds values
	maxResponse = 4 << 20   // bytes of an answer's body
	maxResult   = 256 << 20 // of one that holds a result: two streams, escaped, and maxContent
	maxContent  = 32 << 20  // bytes of files in a result
	callTimeout = 5 * time.Second
	workTimeout = 60 * time.Second // of a call that builds a sandbox, or moves a file
)

// defaultUpload bounds a file that is put into a session, where nobody said otherwise.
const defaultUpload = 50 << 20

// MaxFile is how many bytes of a file of a session are read in one call.
const MaxFile = 64 << 20

// Protocol is the version of what is spoken here.
const Protocol = 1

// Actor is who asks, in the record, when it was asked here.
const Actor = "cli"

// Handler is what a server offers to other terminals.
type Handler interface {
	// Stats tells what the server counts since it was opened.
	Stats() sandboxmcp.Stats

	// Lookup finds a request, whether it still runs or has ended, or fails with
	// request_not_found.
	Lookup(ctx context.Context, q sandboxmcp.Lookup) (sandboxmcp.Result, error)

	// Cancel ends a request of this server, or fails with request_not_found.
	Cancel(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error

	// Execute runs a request to its end. Cancelling ctx ends the program.
	Execute(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error)

	// Start queues a request that lives on after ctx, and returns at once.
	Start(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error)

	SessionHandler
	GuardHandler
	EgressHandler
	VaultHandler
	AuditHandler
}

// SessionHandler is what a server offers of its sessions. It fails with
// session_not_found or session_expired for one that it does not have.
type SessionHandler interface {
	// CreateSession makes a session.
	CreateSession(ctx context.Context, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error)

	// TerminateSession ends a session with all that is in it.
	TerminateSession(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, actor string) error

	// Sessions lists the server's own living sessions, of every namespace for
	// an empty one.
	Sessions(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Session, error)

	// Inspect tells what a namespace has, or one session of it.
	Inspect(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.State, error)

	// Bridge hands values to a session.
	Bridge(ctx context.Context, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error)

	// Upload puts a file into a session and tells its path there.
	Upload(ctx context.Context, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error)

	// SessionFiles lists the files of a session.
	SessionFiles(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error)

	// ReadFile returns a file of a session, of at most limit bytes.
	ReadFile(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error)

	// RemoveFile removes a file of a session.
	RemoveFile(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path, actor string) error
}

// Hello tells which server is on the other side.
type Hello struct {
	Protocol   int       `json:"protocol"` // [Protocol] of its release
	ID         string    `json:"id"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`
	Background bool      `json:"background"` // it was started for commands, and speaks to no agent

	AuditInMemory bool `json:"audit_in_memory"` // its record is not in the state directory
}

// openRunDir opens the directory of the sockets, and makes it when asked to. It
// refuses one that somebody else could write to.
func openRunDir(stateDir string, create bool) (*os.Root, *os.File, error) {
	if create {
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	state, err := os.OpenRoot(stateDir)
	if err != nil {
		return nil, nil, fmt.Errorf("open state directory: %w", err)
	}
	defer func() { _ = state.Close() }()
	if create {
		if err = state.MkdirAll(runDir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("make socket directory: %w", err)
		}
	}
	root, err := state.OpenRoot(runDir)
	if err != nil {
		return nil, nil, fmt.Errorf("open socket directory: %w", err)
	}
	dir, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return nil, nil, fmt.Errorf("open socket directory: %w", err)
	}
	if err := private(dir); err != nil {
		_ = dir.Close()
		_ = root.Close()
		return nil, nil, err
	}
	return root, dir, nil
}

// mayAsk reports whether a server lets a user in: its own, and root.
func mayAsk(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// trusted reports whether a user may be on the other side: oneself, and root.
// Root talks to any user's server: it could do so in other ways as well.
func trusted(uid uint32) bool {
	self := os.Geteuid()
	return uid == 0 || self == 0 || int(uid) == self
}
