// Package api is the HTTP API of a server: a table of routes (routes.go), a handler that
// serves them, and a client that calls them. The handler is mounted on a unix socket in the
// state directory, where the kernel identifies the user of the peer. It can be mounted on
// any other listener with a function that identifies the peer.
//
// A route acts in one namespace. The query parameter namespace selects it; the peer's
// [sandboxmcp.Identity] must hold it. The default is the peer's own namespace. The value *
// means all namespaces. Only routes that list accept it, and only from a peer that holds
// all namespaces.
//
// Request and response bodies are the types of package sandboxmcp in JSON. Requests are
// decoded strictly. A failure is the error body {"error", "message", "hint"} with the HTTP
// status of its code.
//
// POST /v1/execute and GET /v1/events respond with server-sent events (text/event-stream).
// execute sends "stdout" and "stderr" (data: base64) while the program runs, and at the end
// "result" (a sandboxmcp.Result) or "error" (an error body). events sends "message" (a
// sandboxmcp.Event). If the caller closes the connection, the run is cancelled.
//
// A result includes the content of its files unless they exceed 32 MiB together. The
// content is then only in the state directory.
package api

import (
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	runDir = "run" // directory of the sockets, below the state directory
	suffix = ".sock"

	maxRequest  = 64 << 10  // bytes of a request's body
	maxProgram  = 160 << 20 // bytes of a request with a program and its stdin, in base64
	maxBridge   = 16 << 20  // bytes of a request with bridged values
	maxSecret   = 128 << 10 // bytes of a request with a secret
	maxResponse = 4 << 20   // bytes of a response's body
	maxResult   = 256 << 20 // bytes of a response with a result: two escaped streams, and maxContent
	maxContent  = 32 << 20  // bytes of files in a result
	callTimeout = 5 * time.Second
	workTimeout = 60 * time.Second // time for a call that builds a sandbox or transfers a file
)

// defaultUpload is the default bound on bytes of an uploaded file.
const defaultUpload = 50 << 20

// MaxFile bounds the bytes of a session's file that one call reads.
const MaxFile = 64 << 20

// Protocol is the version of the API, the first part of each path.
const Protocol = 1

// Hello identifies a server.
type Hello struct {
	Protocol   int       `json:"protocol"` // [Protocol] of that server
	ID         string    `json:"id"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`
	Background bool      `json:"background"` // it was started by a command and serves no agent

	AuditInMemory bool `json:"audit_in_memory"` // its audit log is not in the state directory

	// Alike is a digest of the facts that a run there depends on besides its request. A process with
	// the same digest would run the request alike. Empty: it is not known.
	Alike string `json:"alike,omitempty"`
}

// Complete reports whether the files of a result have their content.
func Complete(r sandboxmcp.Result) bool {
	return !slices.ContainsFunc(r.Artifacts, func(a sandboxmcp.Artifact) bool { return int64(len(a.ContentB64)) != a.SizeBytes })
}
