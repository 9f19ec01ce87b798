package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// Containers that are kept ready. One costs the memory of a kernel of its own, which is 20 to 40 MiB
// with gVisor.
const (
	relayedReady  = 4
	relayedIdle   = 5 * time.Minute
	relayedWindow = time.Minute
	relayedKeys   = 8
)

// readyPool keeps empty sandboxes by their key.
type readyPool struct {
	*pool.Pool[string, *relayedSandbox]
	b *Relayed
}

func (b *Relayed) newReadyPool() *readyPool {
	if b.cfg.Process.NoPool {
		return &readyPool{nil, b}
	}
	idle := b.cfg.Process.PoolIdle
	if idle <= 0 {
		idle = relayedIdle
	}
	return &readyPool{pool.New(pool.Policy[string, *relayedSandbox]{
		Total: relayedReady, Idle: idle, Window: relayedWindow, Keys: relayedKeys,
		Want: func(_ string, peak int) int { return min(peak, 1) + 1 },
		Dead: func(s *relayedSandbox) bool {
			select {
			case <-s.Gone():
				return true
			default:
				return false
			}
		},
		Drop: func(s *relayedSandbox) error { return s.Close(context.Background()) }, //nolint:forbidigo // Close bounds its waits itself
		Cost: func(_ *relayedSandbox, counts map[string]int) { counts["slots_ready"]++ },
	}), b}
}

// keyOf returns the key of a sandbox: the part of its spec from which its container is made.
func keyOf(spec backend.Spec) string {
	spec.Prestart, spec.ID, spec.MinTier, spec.Hint, spec.Loads, spec.Stays = nil, "", "", "", "", false
	return fmt.Sprintf("%+v", spec)
}

// take returns a ready sandbox, or nil. The pool then builds others like it.
func (p *readyPool) take(spec backend.Spec) *relayedSandbox {
	n := 0
	s, _ := p.Take(keyOf(spec), func() (*relayedSandbox, bool) {
		n++
		spec := spec
		spec.ID = fmt.Sprintf("ready-%d", n)
		built, err := p.b.build(spec)
		if err != nil && !errors.Is(err, context.Canceled) {
			p.b.cfg.Logger.Debug("no sandbox is kept ready", "error", err)
		}
		return built, err == nil
	})
	return s
}

// Pool returns how many sandboxes are kept ready.
func (b *Relayed) Pool() map[string]int {
	counts := map[string]int{"slots_ready": 0}
	b.ready.Count(counts)
	return counts
}

// Trim drops the sandboxes that are kept ready.
func (b *Relayed) Trim(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.ready.Empty()
}
