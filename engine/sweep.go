package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
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

// sweepIfDue sweeps once when nobody has for a while. A database in memory ends
// with what it holds, and is no sweep of the one on disk.
func (e *Engine) sweepIfDue() {
	if e.cfg.SQLitePath == store.MemoryPath {
		return
	}
	st, err := os.Stat(e.sweptMark())
	if err == nil && e.cfg.Now().Sub(st.ModTime()) < sweepDue {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 2*time.Second)
	defer cancel()
	e.sweep(ctx)
}

func (e *Engine) sweptMark() string { return filepath.Join(e.store.Dir(), "swept") }

// sweep drops once. What ends it half way is made up for by the next one.
func (e *Engine) sweep(ctx context.Context) {
	if _, err := e.vault.Sweep(ctx); err != nil {
		e.log.Warn("sweep secrets", "error", err)
	}
	if n, err := e.sessions.Sweep(ctx); err != nil {
		e.log.Warn("sweep sessions", "error", err)
	} else if n > 0 {
		e.log.Warn("sessions of servers that have died are gone", "count", n)
	}
	if err := e.keeper.Sweep(ctx, e.noteDropped); err != nil {
		if ctx.Err() == nil {
			e.log.Warn("sweep records", "error", err)
		}
		return
	}
	if n, err := e.audit.Drop(ctx, e.cfg.AuditKeep); err != nil && ctx.Err() == nil {
		e.log.Warn("drop old audit entries", "error", err)
	} else if n > 0 {
		e.log.Info("old audit entries are dropped", "count", n)
	}
	if e.cfg.SQLitePath == store.MemoryPath {
		return
	}
	f, err := plainfile.Append(e.sweptMark(), 0o600)
	if err == nil {
		now := e.cfg.Now()
		err = errors.Join(f.Close(), os.Chtimes(e.sweptMark(), now, now))
	}
	if err != nil {
		e.log.Warn("mark sweep", "error", err)
	}
}

// noteDropped is the audit's word on a request that is no longer kept. Names of
// files do not stand in the audit: they are the program's.
func (e *Engine) noteDropped(d artifact.Dropped) store.Op {
	return e.audit.Op(&sandboxmcp.AuditEntry{
		Action: "artifact_dropped", Phase: sandboxmcp.PhaseOutcome, RequestID: d.RequestID, Namespace: d.Namespace, Actor: "sweep",
		Detail:   strconv.Itoa(d.Files) + " files",
		Metadata: map[string]any{"files": d.Files, "bytes": d.Bytes, "reason": d.Reason},
	})
}
