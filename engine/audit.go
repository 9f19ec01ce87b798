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
func (e *Engine) Audit(ctx context.Context, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	if q.Namespace == "" {
		q.Namespace = e.cfg.Namespace
	}
	page, err := e.audit.List(ctx, q)
	if err != nil {
		return sandboxmcp.AuditPage{}, sandboxmcp.AsError(err)
	}
	return page, nil
}

// VerifyAudit checks the whole record, of every namespace: see
// [sandboxmcp.AuditReport]. Of one in memory nothing stands elsewhere to check it
// against.
func (e *Engine) VerifyAudit(ctx context.Context) (sandboxmcp.AuditReport, error) {
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
