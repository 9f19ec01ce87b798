// Package api is the one HTTP surface of a server: a table of routes (routes.go),
// a handler that serves them, and a client that calls them. The handler is
// mounted on a unix socket in the state directory, where the kernel says which
// user is on the other side. It can be mounted on any other listener with a
// function that says who the peer is.
//
// A route acts in one namespace: the query parameter namespace, which has to be
// one that the peer's [sandboxmcp.Identity] holds, or else the peer's own. The
// value * stands for all namespaces where the peer holds them all and the verb
// lists.
//
// Bodies and answers are the types of package sandboxmcp in JSON. Bodies are
// decoded strictly. A failure is the error body {"error", "message", "hint"} with
// the HTTP status of its code.
//
// POST /v1/execute and GET /v1/events answer with server-sent events
// (text/event-stream): execute with "stdout" and "stderr" (data: base64) while the
// program runs, and at the end "result" (a sandboxmcp.Result) or "error" (an error
// body); events with "event" (a sandboxmcp.Event). If the caller hangs up, the run
// is cancelled.
//
// Files of a result come with their content unless they have more than 32 MiB
// together. The content is then left out and stands in the state directory.
package api

import (
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	runDir = "run" // of the sockets, below the state directory
	suffix = ".sock"

	maxRequest  = 64 << 10  // bytes of a request's body
	maxProgram  = 160 << 20 // of a body with a program and its stdin, in base64
	maxBridge   = 16 << 20  // of a body with values
	maxSecret   = 128 << 10 // of a body with a secret
	maxResponse = 4 << 20   // bytes of an answer
	maxResult   = 256 << 20 // of an answer with a result: two streams, escaped, and maxContent
	maxContent  = 32 << 20  // bytes of files in a result
	maxFollow   = 64        // callers that follow events at once
	callTimeout = 5 * time.Second
	workTimeout = 60 * time.Second // of a call that builds a sandbox or moves a file
)

// defaultUpload bounds a file that is put into a session, unless Config says otherwise.
const defaultUpload = 50 << 20

// MaxFile is how many bytes of a file of a session are read in one call.
const MaxFile = 64 << 20

// Protocol is the version of the API, the first part of each path.
const Protocol = 1

// Hello tells which server answers.
type Hello struct {
	Protocol   int       `json:"protocol"` // [Protocol] of its release
	ID         string    `json:"id"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`
	Background bool      `json:"background"` // it was started for commands and serves no agent

	AuditInMemory bool `json:"audit_in_memory"` // its record is not in the state directory
}

// Complete reports whether the files of a result have their content.
func Complete(r sandboxmcp.Result) bool {
	return !slices.ContainsFunc(r.Artifacts, func(a sandboxmcp.Artifact) bool { return int64(len(a.ContentB64)) != a.SizeBytes })
}
