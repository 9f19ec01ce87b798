package app

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const trimAfter = 10 * time.Second

// trim returns memory to the system after the server has been idle for a while. The
// collector is set to run rarely, so an idle server would otherwise keep the memory of
// its last requests. It returns when ctx ends.
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
