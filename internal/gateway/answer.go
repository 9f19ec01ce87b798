package gateway

import (
	"context"
	"io"
	"net/http"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// AnswerURL is where programs of a sandbox reach the handler of [Egress.Answer].
const AnswerURL = egress.AnswerURL

// Answer makes a handler the only network of a sandbox that has none yet. Requests that it
// serves end with ctx. The caller closes it before the sandbox.
func (e *Egress) Answer(ctx context.Context, sb backend.Sandbox, h http.Handler) (io.Closer, error) {
	net, ok := sb.(backend.Networker)
	if !ok {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "this backend's sandboxes have no network").WithHint("use the process backend")
	}
	n, err := net.Network(ctx, nil)
	if err != nil {
		return nil, err
	}
	return egress.Answer(ctx, n, h, e.cfg.Logger), nil
}
