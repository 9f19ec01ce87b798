package engine

import (
	"context"
	"errors"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// openAudit opens the audit log. The log is signed while it grows.
func (e *Engine) openAudit() (*audit.Log, error) {
	c := audit.Config{Now: e.cfg.Now, Signer: e.key, CheckpointFile: e.cfg.AuditCheckpointFile, Logger: e.log}
	if e.store.Path() != store.MemoryPath {
		c.HeadFile = audit.HeadFile(e.store.Dir(), e.store.Path())
	} else if c.CheckpointFile != "" {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "audit_checkpoint_file is set, but the audit log is kept in memory").
			WithHint("keep the audit log on disk (audit: sqlite), or remove audit_checkpoint_file")
	}
	return audit.Open(e.ctx, e.store, c)
}

// Audit returns the audit entries that match a query. Servers that share a state
// directory share one log, so the page also has their entries. It reads all that match, to
// count them, and so the namespaces take turns.
func (e *Engine) Audit(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.AuditPage{}, err
	}
	done, err := inTurn(ctx, e.scans, c)
	if err != nil {
		return sandboxmcp.AuditPage{}, err
	}
	defer done()
	page, err := e.audit.List(ctx, c.Namespace, q)
	if err != nil {
		return sandboxmcp.AuditPage{}, sandboxmcp.AsError(err)
	}
	return page, nil
}

// VerifyAudit checks the whole audit log, of every namespace. Only the zero Caller and a
// caller with EveryNamespace may call it; others get access_denied. A log in memory has
// no head file, so it is only checked against itself.
func (e *Engine) VerifyAudit(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.AuditReport, error) {
	if c.Namespace != "" && c.Namespace != sandboxmcp.EveryNamespace {
		return sandboxmcp.AuditReport{}, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the audit log of all namespaces may be verified only by a caller that holds them all")
	}
	done, err := inTurn(ctx, e.scans, sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace})
	if err != nil {
		return sandboxmcp.AuditReport{}, err
	}
	defer done()
	with := audit.Evidence{Key: e.key.ID(), Open: e.key.OpenNote, Signer: e.key, CheckpointFile: e.cfg.AuditCheckpointFile, Schema: e.store.Differences}
	with.Rows = append(audit.Keyed(e.key.Derive, installed.Faults, gate.Faults), e.vault.Faults)
	if e.store.Path() != store.MemoryPath {
		with.HeadFile = audit.HeadFile(e.store.Dir(), e.store.Path())
	}
	if err = e.store.Settle(ctx); err != nil {
		return sandboxmcp.AuditReport{}, sandboxmcp.AsError(err)
	}
	db, end := e.store.Apart(ctx)
	rep, err := audit.Verify(ctx, db, with)
	if err = errors.Join(err, end()); err != nil {
		return rep, sandboxmcp.AsError(err)
	}
	return rep, nil
}

// AuditInMemory reports whether the audit log is in memory. Such a log ends with this
// engine and no other process can read it.
func (e *Engine) AuditInMemory() bool { return e.store.Path() == store.MemoryPath }
