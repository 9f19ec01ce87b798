package engine

import (
	"context"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
)

// liveSession is a live session with what the engine adds to it: its share of the machine's
// kernel tasks, its network, and the secrets that its programs have had.
type liveSession struct {
	*session.Live

	share     *queue.Share            // kernel tasks of the sandbox, until Close
	interp    interpreter.Interpreter // of the sandbox
	gatewayMu sync.Mutex              // guards gateway and shut
	gateway   *gateway.Gateway        // network of the sandbox; nil: not needed so far
	shut      bool                    // Close was called
	offline   bool                    // the session never gets a network

	had guard.Had
}

// Close records what was refused last, closes the network and closes the sandbox.
func (r *liveSession) Close(ctx context.Context) error {
	r.Quiesce()
	r.gatewayMu.Lock()
	r.shut = true
	w := r.gateway
	r.gatewayMu.Unlock()
	w.CloseSession()
	defer r.share.Release()
	return r.Live.Close(ctx)
}

// adopt makes w the session's network, and reports whether the session had none. If the
// session is closed already, it closes w.
func (r *liveSession) adopt(w *gateway.Gateway) bool {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	first := r.gateway == nil
	if r.gateway = w; r.shut && first {
		w.Close()
	}
	return first
}

func (r *liveSession) currentGateway() *gateway.Gateway {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	return r.gateway
}
