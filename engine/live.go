package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
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

	share     *queue.Share                                    // kernel tasks of the sandbox, until Close
	interps   map[sandboxmcp.Language]interpreter.Interpreter // of its runs; belongs to the run that has claimed the session
	trees     []backend.Tree                                  // that the sandbox shows
	env       map[string]string                               // of its interpreters
	gatewayMu sync.Mutex                                      // guards gateway and shut
	gateway   *gateway.Gateway                                // network of the sandbox; nil: no run has begun
	shut      bool                                            // Close was called
	offline   bool                                            // the session never gets a network

	hold     func([]interpreter.Installed) (release func(), err error)
	treesMu  sync.Mutex              // guards the fields below
	attached []interpreter.Installed // trees of packages that the sandbox shows
	releases []func()                // let go of them on the disk, after the sandbox is closed
	own      []interpreter.Installed // those of the session, the latest first
	kept     []interpreter.Installed // those of its namespace, likewise

	had guard.Had
}

// add adds the interpreter of a language to the session. It fails with runtime_unavailable if the
// interpreter is in another image, or needs files that the sandbox does not show.
func (r *liveSession) add(language sandboxmcp.Language, interp interpreter.Interpreter) error {
	for _, other := range r.interps {
		if other.Image != interp.Image {
			return sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the session's image %s has no interpreter for %s", sandboxmcp.Quote(other.Image), language).
				WithHint("use another session for " + string(language) + ", or an image with all languages, such as that of `sandboxmcp image build`")
		}
	}
	for _, t := range interp.Trees {
		if !slices.Contains(r.trees, t) {
			return sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the session does not show %s, which %s needs", sandboxmcp.Quote(t.Host), language).
				WithHint("create a new session: the interpreter was installed or changed after this one began")
		}
	}
	r.interps[language] = interp
	r.Add(interp.Program(sandboxmcp.Request{Language: language, Env: r.env}, nil))
	return nil
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
	err := r.Live.Close(ctx)
	r.treesMu.Lock()
	defer r.treesMu.Unlock()
	for _, release := range r.releases {
		release()
	}
	r.releases = nil
	return err
}

// adopt makes w the session's network. If the session had none and is closed already, it closes w.
func (r *liveSession) adopt(w *gateway.Gateway) {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	first := r.gateway == nil
	if r.gateway = w; r.shut && first {
		w.Close()
	}
}

func (r *liveSession) currentGateway() *gateway.Gateway {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	return r.gateway
}
