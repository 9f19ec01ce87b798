package app

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const trimAfter = 10 * time.Second

// trim gives memory back to the system when the server has been idle for a
// while: the collector is set to run rarely, so that a busy server answers
// quickly, and an idle one would otherwise keep what its last calls took. It
// returns when ctx ends.
func trim(ctx context.Context, m sandboxmcp.Monitor) {
	t := time.NewTicker(trimAfter)
	defer t.Stop()
	seen, trimmed := int64(-1), int64(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		st, err := m.Stats(ctx)
		if err != nil {
			continue
		}
		q := st.Queue
		if q.Active == 0 && q.TotalProcessed == seen && seen != trimmed {
			debug.FreeOSMemory()
			trimmed = seen
		}
		seen = q.TotalProcessed
	}
}
