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
	sweepFirst = 5 * time.Second  // after the start: most single commands have ended by then
	sweepEvery = 10 * time.Minute // interval of a server
	sweepDue   = time.Hour        // a command that ends sweeps if the last sweep is older
)

// sweepLoop sweeps regularly while the engine is open.
func (e *Engine) sweepLoop() {
	t := time.NewTimer(sweepFirst)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
		}
		e.sweep(e.ctx, 0)
		t.Reset(sweepEvery)
	}
}

// sweepIfDue sweeps if the last sweep by any process is older than sweepDue. It does not
// sweep a database in memory, which ends with the engine.
func (e *Engine) sweepIfDue() {
	if e.cfg.SQLitePath == store.MemoryPath || e.swept(sweepDue) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 2*time.Second)
	defer cancel()
	e.sweep(ctx, sweepDue)
}

func (e *Engine) sweptMark() string { return filepath.Join(e.store.Dir(), "swept") }

// swept reports whether the last sweep of the state directory ended within that time. A
// sweep in the future says nothing: the clock was set back since.
func (e *Engine) swept(within time.Duration) bool {
	st, err := os.Stat(e.sweptMark())
	if err != nil {
		return false
	}
	age := e.cfg.Now().Sub(st.ModTime())
	return age > -within && age < within
}

// sweepLease is held by the one process that sweeps a state directory.
const sweepLease = "sweep.lock"

// sweep removes expired secrets, sessions, results and audit entries. Processes sweep one
// at a time; if another one has swept within that time, it does nothing. The next sweep
// makes up for one that fails.
func (e *Engine) sweep(ctx context.Context, within time.Duration) {
	if e.cfg.SQLitePath != store.MemoryPath { // a database in memory is not shared
		lease, err := e.store.Lease(ctx, sweepLease)
		if err != nil {
			if ctx.Err() == nil {
				e.log.Warn("sweep", "error", err)
			}
			return
		}
		defer func() { _ = lease.Release() }()
		if within > 0 && e.swept(within) {
			return
		}
	}
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

// noteDropped returns the audit entry for a request whose files were dropped. It has no
// file names, because the program chose them.
func (e *Engine) noteDropped(d artifact.Dropped) store.Op {
	return e.audit.Op(&sandboxmcp.AuditEntry{
		Action: "artifact_dropped", Phase: sandboxmcp.PhaseOutcome, RequestID: d.RequestID, Namespace: d.Namespace, Actor: "sweep",
		Detail:   strconv.Itoa(d.Files) + " files",
		Metadata: map[string]any{"files": d.Files, "bytes": d.Bytes, "reason": d.Reason},
	})
}
