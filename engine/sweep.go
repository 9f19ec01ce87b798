package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	sweepFirst = 5 * time.Second  // after the engine was opened: a single command is gone by then
	sweepEvery = 10 * time.Minute // of a server
	sweepDue   = time.Hour        // when a command that ends looks after it, should no server do
)

// sweepLoop drops what is kept for longer than it has to be, as long as the
// engine is open.
func (e *Engine) sweepLoop() {
	t := time.NewTimer(sweepFirst)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
		}
		e.sweep(e.ctx)
		t.Reset(sweepEvery)
	}
}

// sweepIfDue sweeps once when nobody has for a while.
func (e *Engine) sweepIfDue() {
	st, err := os.Stat(e.sweptMark())
	if err == nil && e.cfg.Now().Sub(st.ModTime()) < sweepDue {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 2*time.Second)
	defer cancel()
	e.sweep(ctx)
}

func (e *Engine) sweptMark() string { return filepath.Join(e.store.Dir(), "swept") }

func (e *Engine) sweep(ctx context.Context) {
	for range 20 {
		dropped, sweepErr := e.keeper.Sweep(ctx)
		for _, d := range dropped { // also what was dropped before it failed
			_, err := e.audit.Append(context.WithoutCancel(ctx), sandboxmcp.AuditEntry{
				Action: "artifact_dropped", Phase: sandboxmcp.PhaseOutcome, RequestID: d.RequestID, Namespace: d.Namespace, Actor: "sweep",
				Detail: strconv.Itoa(len(d.Names)) + " files",
			})
			if err != nil {
				e.log.Warn("record sweep", "error", err)
				return
			}
		}
		if sweepErr != nil {
			if !errors.Is(sweepErr, context.Canceled) {
				e.log.Warn("sweep records", "error", sweepErr)
			}
			return
		}
		if len(dropped) == 0 {
			break
		}
	}
	f, err := os.OpenFile(e.sweptMark(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		now := e.cfg.Now()
		err = errors.Join(f.Close(), os.Chtimes(e.sweptMark(), now, now))
	}
	if err != nil {
		e.log.Warn("mark sweep", "error", err)
	}
}
