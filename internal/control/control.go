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
// A request that has not ended is answered with the status running. With
// content=true the files come with what is in them, unless that is more than
// 32 MiB together: then it is left out, and stands in the state directory.
//
// A failure is the error body {"error", "message", "hint"} with the HTTP
// status of its code. A socket bears the mark of its server in its name and is
// put in place only when it answers, so one that refuses belongs to a server
// that died and is removed by whoever finds it.
package control

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
	maxResponse = 4 << 20   // bytes of an answer's body
	maxResult   = 256 << 20 // of one that holds a result: two streams, escaped, and maxContent
	maxContent  = 32 << 20  // bytes of files in a result
	callTimeout = 5 * time.Second
)

// Handler is what a server offers to other terminals.
type Handler interface {
	// Stats tells what the server counts since it was opened.
	Stats() sandboxmcp.Stats

	// Lookup finds a request, whether it still runs or has ended, or fails with
	// request_not_found.
	Lookup(ctx context.Context, q sandboxmcp.Lookup) (sandboxmcp.Result, error)

	// Cancel ends a request of this server, or fails with request_not_found.
	Cancel(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error
}

// Hello tells which server is on the other side.
type Hello struct {
	Protocol  int       `json:"protocol"` // 1
	ID        string    `json:"id"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
}

type cancelRequest struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	RequestID sandboxmcp.RequestID `json:"request_id"`
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

// trusted reports whether a user may be on the other side: oneself, and root.
// Root talks to any user's server: it could do so in other ways as well.
func trusted(uid uint32) bool {
	self := os.Geteuid()
	return uid == 0 || self == 0 || int(uid) == self
}
