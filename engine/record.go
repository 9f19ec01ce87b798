package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// actionExecute is the audit action of a run.
const actionExecute = "execute"

// recordIntent starts to record that code is about to run. The code must not run before
// the channel has delivered nil.
func (e *Engine) recordIntent(x *execution) <-chan error {
	done := make(chan error, 1)
	if x.live != nil { // there is no sandbox to build meanwhile
		done <- e.intend(x)
		return done
	}
	go func() { done <- e.intend(x) }()
	return done
}

func (e *Engine) intend(x *execution) error {
	use, opened := e.vault.Use(x.who.Namespace, func(keys []string) (*sandboxmcp.AuditEntry, error) { return e.choose(x, keys) })
	entry := sandboxmcp.AuditEntry{
		Action: actionExecute, Phase: sandboxmcp.PhaseIntent, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
		Detail:   string(x.req.Language) + ": " + strconv.Itoa(len(x.req.Code)) + " bytes",
		Metadata: map[string]any{"code_sha256": x.codeSHA256, "code_bytes": len(x.req.Code), "backend": x.req.Backend, "limits": x.limits},
	}
	x.policy.describe(&entry)
	ops := []store.Op{e.audit.Op(&entry), use}
	if grants := e.openings(x); grants != nil {
		ops = append(ops, e.audit.Op(grants))
	}
	err := e.store.Update(x.ctx, ops...)
	if err != nil && x.ctx.Err() != nil {
		return cancelledError(x.ctx)
	}
	if err == nil {
		e.openSecrets(x, opened)
	}
	return err
}

// recordFailure records that a run with a recorded intent failed without a result.
func (e *Engine) recordFailure(x *execution, cause error) {
	no := false
	entry := sandboxmcp.AuditEntry{
		Action: actionExecute, Phase: sandboxmcp.PhaseOutcome, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
		Success: &no, Detail: string(x.req.Language) + ": " + string(sandboxmcp.CodeOf(cause)),
	}
	ops := []store.Op{e.audit.Op(&entry)}
	for _, n := range refusals(x.refused(), sandboxmcp.AuditEntry{RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor}) {
		ops = append(ops, e.audit.Op(n))
	}
	if err := e.store.Update(context.WithoutCancel(x.ctx), ops...); err != nil {
		e.log.Error("record failure", "request", x.req.ID, "error", err)
	}
}

// collect stores the files that a run made or changed. In the sandbox of a single run no
// process lives any more.
func (e *Engine) collect(x *execution, sb backend.Sandbox, o *run.Outcome, res *sandboxmcp.Result) error {
	if res.Status == sandboxmcp.StatusRejected {
		return nil
	}
	src := artifact.Source{Files: sb.Files(), RequestID: x.req.ID, Now: o.Ended}
	if x.live != nil {
		src.SessionID, src.Known = &x.req.SessionID, x.live.Known()
	}
	e.guardFiles(x, &src)
	ctx, cancel := after(x.ctx, collectGrace)
	defer cancel()
	got, err := e.keeper.Collect(ctx, src)
	if err != nil {
		cause := sandboxmcp.AsError(err)
		bad := sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the program's files could not be kept: %s", cause.Message).WithCause(cause.Err)
		if cause.Code == sandboxmcp.CodeBackendUnavailable { // a fault of the server, not of the program
			bad.Code, bad.Hint = cause.Code, cause.Hint
		}
		return bad
	}
	if x.live != nil {
		x.live.Learn(got.States)
	}
	res.Artifacts = got.Artifacts
	if len(x.guard.files) > 0 {
		res.Metadata["secret_artifacts"] = x.guard.files
	}
	if len(got.Skipped) > 0 {
		res.Metadata["skipped"] = got.Skipped
	}
	return nil
}

// collectGrace is how long collecting may go on after the run was canceled.
const collectGrace = time.Second

// after returns a context that ends grace after ctx.
func after(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-later.Done():
		}
	})
	return later, func() { stop(); cancel() }
}

// sign signs each artifact, and then the receipt. It returns what the receipt says.
func (e *Engine) sign(x *execution, o *run.Outcome, res *sandboxmcp.Result) (said sandboxmcp.ReceiptPredicate, err error) {
	files := make([]sandboxmcp.ReceiptArtifact, 0, len(res.Artifacts))
	for i := range res.Artifacts {
		a := &res.Artifacts[i]
		a.Signature, err = e.key.Artifact(sign.ArtifactStatement{Namespace: x.who.Namespace, RequestID: x.req.ID, Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256, CodeSHA256: x.codeSHA256, CreatedAt: a.CreatedAt})
		if err != nil {
			return said, fmt.Errorf("sign %s: %w", a.Name, err)
		}
		files = append(files, sandboxmcp.ReceiptArtifact{Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256})
	}
	said = sandboxmcp.ReceiptPredicate{
		Version: 1, Product: e.cfg.Version, RequestID: x.req.ID, SessionID: x.sessionID(), Namespace: x.who.Namespace, Language: x.req.Language, CodeSHA256: x.codeSHA256,
		Status: res.Status, ExitCode: res.ExitCode, StartedAt: o.Started.UTC(), EndedAt: o.Ended.UTC(),
		StdoutSHA256: hashText(res.Stdout), StderrSHA256: hashText(res.Stderr), StdoutTruncated: res.StdoutTruncated, StderrTruncated: res.StderrTruncated,
		Artifacts: files, Limits: x.limits, Isolation: res.Isolation, Network: &res.Network, Secrets: x.guard.used(),
	}
	r, err := e.key.Receipt(sign.Statement{Predicate: said})
	if err != nil {
		return said, fmt.Errorf("sign receipt: %w", err)
	}
	res.Receipt = &r
	return said, nil
}

func hashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// recordOutcome stores the result and records the outcome, in one transaction.
func (e *Engine) recordOutcome(x *execution, o *run.Outcome, said sandboxmcp.ReceiptPredicate, res *sandboxmcp.Result) error {
	entry := &sandboxmcp.AuditEntry{
		Action: actionExecute, Phase: sandboxmcp.PhaseOutcome, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
		ExitCode: &res.ExitCode, DurationMS: &res.DurationMS, Success: &res.Success, Usage: &res.Usage,
		Detail: fmt.Sprintf("%s: exit=%d duration=%.0fms", x.req.Language, res.ExitCode, res.DurationMS),
		Metadata: map[string]any{
			"status": res.Status, "stdout_bytes": x.run.Stdout.Size(), "stderr_bytes": x.run.Stderr.Size(), "stdout_sha256": said.StdoutSHA256, "stderr_sha256": said.StderrSHA256,
			"artifacts": len(res.Artifacts), "tier": res.Isolation.Tier,
		},
	}
	ctx := context.WithoutCancel(x.ctx)
	save, err := e.keeper.Save(ctx, artifact.Record{Result: *res, CreatedAt: x.received, EndedAt: o.Ended}, e.noteDropped)
	if err != nil {
		return unkept(err)
	}
	ops := []store.Op{save, e.audit.Op(entry)}
	notes := append(e.notes(x, res), refusals(res.Network.Denied, sandboxmcp.AuditEntry{
		RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
	})...)
	for _, n := range notes {
		ops = append(ops, e.audit.Op(n))
	}
	if err := e.store.Update(ctx, ops...); err != nil {
		return unkept(err)
	}
	if err := e.keeper.Discard(ctx); err != nil { // the next sweep removes them
		e.log.Warn("remove the files of dropped results", "error", err)
	}
	return nil
}

// unkept adds to an error that the program ran, so that the caller knows that a retry
// runs it again.
func unkept(err error) error {
	e := *sandboxmcp.AsError(err)
	e.Message = "the program ran, but its result could not be kept: " + e.Message
	return &e
}

// notes returns audit entries that accompany the outcome: what stopped the run, and how
// many files were signed.
func (e *Engine) notes(x *execution, res *sandboxmcp.Result) []*sandboxmcp.AuditEntry {
	var notes []*sandboxmcp.AuditEntry
	note := func(action, detail string) {
		notes = append(notes, &sandboxmcp.AuditEntry{
			Action: action, Phase: sandboxmcp.PhaseOutcome, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor, Detail: detail,
		})
	}
	switch res.Status {
	case sandboxmcp.StatusTimedOut:
		note("timeout", fmt.Sprintf("%s: after %gs", x.req.Language, x.limits.TimeoutSeconds))
	case sandboxmcp.StatusOutOfMemory:
		note("resource_exceeded", fmt.Sprintf("%s: max_ram_mb %d", x.req.Language, x.limits.MaxRAMMB))
	case sandboxmcp.StatusOutputLimit:
		note("resource_exceeded", fmt.Sprintf("%s: max_output_bytes %d", x.req.Language, x.limits.MaxOutputBytes))
	case sandboxmcp.StatusRejected:
		note("validation_failed", string(x.req.Language)+": syntax")
	case sandboxmcp.StatusCompleted, sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled, sandboxmcp.StatusCancelled, sandboxmcp.StatusRunning:
	}
	if n := len(res.Artifacts); n > 0 {
		note("artifact_signed", strconv.Itoa(n)+" files")
	}
	return notes
}

// recordServer records the start or the stop of a server.
func (e *Engine) recordServer(ctx context.Context, action string) error {
	_, err := e.audit.Append(ctx, sandboxmcp.AuditEntry{Action: action, Phase: sandboxmcp.PhaseOutcome, Namespace: e.cfg.Namespace, Actor: e.cfg.Actor, Detail: e.cfg.Version})
	return err
}
