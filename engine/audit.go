package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// openAudit opens the record, which is signed as it grows.
func (e *Engine) openAudit() (*audit.Log, error) {
	c := audit.Config{Now: e.cfg.Now, Signer: e.key, CheckpointFile: e.cfg.AuditCheckpointFile, Logger: e.log}
	if e.store.Path() != store.MemoryPath {
		c.HeadFile = audit.HeadFile(e.store.Dir(), e.store.Path())
	} else if c.CheckpointFile != "" {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "audit_checkpoint_file is set, and the record is kept in memory").
			WithHint("keep the record on disk (audit: sqlite), or take audit_checkpoint_file away")
	}
	return audit.Open(e.ctx, e.store, c)
}

// Audit returns what the record has of a query. Of a record that several servers
// share it has the entries of all of them.
func (e *Engine) Audit(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.AuditPage{}, err
	}
	page, err := e.audit.List(ctx, c.Namespace, q)
	if err != nil {
		return sandboxmcp.AuditPage{}, sandboxmcp.AsError(err)
	}
	return page, nil
}

// VerifyAudit checks the whole record, of every namespace. Only a caller that holds
// every namespace, and the zero Caller, may ask. A record in memory is checked
// against nothing outside of it.
func (e *Engine) VerifyAudit(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.AuditReport, error) {
	if c.Namespace != "" && c.Namespace != sandboxmcp.EveryNamespace {
		return sandboxmcp.AuditReport{}, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the record of all namespaces is checked only for its owner")
	}
	with := audit.Evidence{Key: e.key.ID(), Open: e.key.OpenNote, CheckpointFile: e.cfg.AuditCheckpointFile}
	if e.store.Path() != store.MemoryPath {
		with.HeadFile = audit.HeadFile(e.store.Dir(), e.store.Path())
	}
	rep, err := audit.Verify(ctx, e.store.DB(), with)
	if err != nil {
		return rep, sandboxmcp.AsError(err)
	}
	return rep, nil
}

// AuditInMemory reports whether the record ends with this engine, so that nobody
// but it can be asked for it.
func (e *Engine) AuditInMemory() bool { return e.store.Path() == store.MemoryPath }
