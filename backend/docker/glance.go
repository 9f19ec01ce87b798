package docker

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// glanceTime bounds a glance.
const glanceTime = 200 * time.Millisecond

// glance reports whether an engine answers, without using it: it connects, sends only _ping and
// discards the answer.
func (e *Engine) glance(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, glanceTime)
	defer cancel()
	api, err := dockerapi.New(dockerapi.Config{Host: e.cfg.Host})
	if err == nil {
		err = api.Ping(ctx)
	}
	if err != nil {
		return "no engine answers at " + e.cfg.Host
	}
	return "an engine answers at " + e.cfg.Host + "; no request has used it yet"
}
