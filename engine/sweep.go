package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

const (
	sweepFirst = 5 * time.Second  // after the start: most single commands have ended by then
	sweepEvery = 10 * time.Minute // interval of a server
	sweepDue   = time.Hour        // a command that ends sweeps if the last sweep is older

	followEvery = time.Minute // 10,000 entries take 0.2 s
)

// schemaTimeout bounds the comparison of the tables, which takes milliseconds.
const schemaTimeout = 10 * time.Second

// sweepLoop compares the tables of the record and sweeps regularly while the engine is open.
func (e *Engine) sweepLoop() {
	t := time.NewTimer(sweepFirst)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
		}
		e.checkSchema()
		e.sweep(e.ctx, 0)
		t.Reset(sweepEvery)
	}
}

// followLoop reads the newest entries of the record regularly, for grants that were revoked or used and packages that were removed. It
// also settles changes that were announced and not committed.
func (e *Engine) followLoop() {
	t := time.NewTicker(followEvery)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
		}
		if err := e.store.CatchUp(e.ctx); err != nil && e.ctx.Err() == nil {
			e.log.Warn("a change that was announced could not be settled; trying again", "error", err)
		}
		db, end := e.store.Apart(e.ctx)
		if err := errors.Join(e.record.Follow(e.ctx, db), end()); err != nil && e.ctx.Err() == nil {
			e.log.Warn("the newest entries of the audit could not be read; trying again", "error", err)
		}
	}
}

// checkSchema lets the record compare its tables.
func (e *Engine) checkSchema() {
	ctx, cancel := context.WithTimeout(e.ctx, schemaTimeout)
	defer cancel()
	if err := e.audit.CheckSchema(ctx); err != nil && e.ctx.Err() == nil {
		e.log.Warn("the tables of the audit could not be compared; trying again at the next sweep", "error", err)
	}
}

// chore is the sweep of the state directory, by one process at a time.
func (e *Engine) chore() store.Chore {
	return store.Chore{Store: e.store, Lease: "sweep.lock", Mark: "swept", Now: e.cfg.Now}
}

// sweepIfDue sweeps if the last sweep by any process is older than sweepDue. It does not
// sweep a database in memory, which ends with the engine.
func (e *Engine) sweepIfDue() {
	if c := e.chore(); !c.Shared() || c.Done(sweepDue) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 2*time.Second)
	defer cancel()
	e.sweep(ctx, sweepDue)
}

// sweep removes expired secrets, sessions, results and audit entries. If another process
// has swept within that time, it does nothing. The next sweep makes up for one that fails.
func (e *Engine) sweep(ctx context.Context, within time.Duration) {
	err := e.chore().Do(ctx, within, func() bool { return e.sweepAll(ctx) })
	if err != nil && ctx.Err() == nil {
		e.log.Warn("sweep", "error", err)
	}
}

// sweepAll reports whether results were swept.
func (e *Engine) sweepAll(ctx context.Context) bool {
	if err := e.store.CheckClock(ctx); err != nil {
		if ctx.Err() == nil {
			e.log.Error("nothing that has expired is removed", "error", err)
		}
		return false
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
		return false
	}
	if n, err := e.audit.Drop(ctx, e.settings().AuditKeep); err != nil && ctx.Err() == nil {
		e.log.Warn("drop old audit entries", "error", err)
	} else if n > 0 {
		e.log.Info("old audit entries are dropped", "count", n)
	}
	return true
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
