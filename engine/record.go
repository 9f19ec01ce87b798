package engine

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/stack"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// entries makes the audit entries of a run.
func (x *execution) entries() audit.Run {
	return audit.Run{Like: sandboxmcp.AuditEntry{RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor}}
}

// recordIntent starts to record that code is about to run. The code must not run before
// the channel has delivered nil.
func (e *Engine) recordIntent(x *execution) <-chan error {
	done := make(chan error, 1)
	if x.live != nil { // there is no sandbox to build meanwhile
		done <- e.intend(x)
		return done
	}
	go func() {
		stack.Grow()
		done <- e.intend(x)
	}()
	return done
}

func (e *Engine) intend(x *execution) error {
	entry := x.entries().Intent(x.req.Code, x.codeSHA256, x.req.Backend, x.limits)
	x.network.Describe(entry)
	secrets, err := x.secrets.Use(x.ctx)
	if err == nil {
		err = e.keep(x.ctx, entry, secrets, x.network.Openings(x.entries().Like))
	}
	if err != nil && x.ctx.Err() != nil {
		return cancelledError(x.ctx)
	}
	if err == nil {
		x.secrets.Open(x.ctx)
	}
	return err
}

// keep records audit entries together. Those that are nil are left out.
func (e *Engine) keep(ctx context.Context, entries ...*sandboxmcp.AuditEntry) error {
	notes, err := e.notes(entries)
	if err != nil {
		return err
	}
	return e.store.Keep(ctx, notes...)
}

func (e *Engine) notes(entries []*sandboxmcp.AuditEntry) ([]store.Note, error) {
	notes := make([]store.Note, 0, len(entries)+1)
	for _, entry := range entries {
		if entry == nil {
			continue
		}
		n, err := e.audit.Note(entry)
		if err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// recordFailure records that a run with a recorded intent failed without a result.
func (e *Engine) recordFailure(x *execution, cause error) {
	entries := append([]*sandboxmcp.AuditEntry{x.entries().Failed(sandboxmcp.CodeOf(cause))}, gateway.Refusals(x.network.Refused(), x.entries().Like)...)
	if err := e.keep(context.WithoutCancel(x.ctx), entries...); err != nil {
		e.log.Error("record failure", "request", x.req.ID, "error", err)
	}
}

// collect stores the files that a run made or changed. In the sandbox of a single run no
// process lives any more.
func (e *Engine) collect(x *execution, sb backend.Sandbox, o *run.Outcome, res *sandboxmcp.Result) error {
	if res.Status == sandboxmcp.StatusRejected {
		return nil
	}
	src := artifact.Source{Files: sb.Files(), RequestID: x.req.ID, Now: o.Ended, Grace: collectGrace}
	if x.live != nil {
		src.SessionID, src.Known, src.Empty = &x.req.SessionID, x.live.Known(), x.live.Empty()
	}
	x.secrets.Files(&src)
	got, err := e.keeper.Collect(x.ctx, src)
	// The limit of memory ends the whole of a sandbox with a kernel of its own, with its files.
	if x.gone = o.Exit.Lost && res.Status == sandboxmcp.StatusOutOfMemory && errors.Is(err, fs.ErrClosed); x.gone {
		if x.live != nil {
			e.sessions.Lost(x.session)
		}
		return nil
	}
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
	x.files = note.Files{Kept: len(got.Artifacts), Beyond: got.Beyond, Partial: got.Partial, Large: got.Large}
	x.secrets.Describe(res.Metadata)
	if len(got.Skipped) > 0 {
		res.Metadata["skipped"] = got.Skipped
		res.Metadata["skipped_total"] = got.SkippedTotal
	}
	if got.Partial { // skipped_total is a lower bound
		res.Metadata["skipped_partial"] = true
	}
	return nil
}

// collectGrace is how long collecting may go on after the run was cancelled.
const collectGrace = time.Second

// sign signs each artifact, and then the receipt. It returns the output for the record.
func (e *Engine) sign(x *execution, o *run.Outcome, res *sandboxmcp.Result) (out audit.Output, err error) {
	out.StdoutBytes, out.StderrBytes = x.run.Stdout.Size(), x.run.Stderr.Size()
	out.StdoutSHA256, out.StderrSHA256, err = e.key.Result(res, sign.Run{
		Product: e.cfg.Version, CodeSHA256: x.codeSHA256, StartedAt: o.Started, EndedAt: o.Ended, Limits: x.limits, Secrets: x.secrets.Used(),
	})
	return out, err
}

// recordOutcome stores the result and records the outcome, together.
func (e *Engine) recordOutcome(x *execution, o *run.Outcome, out audit.Output, res *sandboxmcp.Result) error {
	ctx := context.WithoutCancel(x.ctx)
	save, err := e.keeper.Save(ctx, artifact.Record{Result: *res, CreatedAt: x.received, EndedAt: o.Ended, Named: x.named}, e.noteDropped)
	if err != nil {
		return unkept(err)
	}
	notes, err := e.notes(append(x.entries().Ended(res, out, x.limits), gateway.Refusals(res.Network.Denied, x.entries().Like)...))
	if err == nil {
		err = e.store.Keep(ctx, append(notes, save)...)
	}
	if err != nil {
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

// recordServer records the start or the stop of a server.
func (e *Engine) recordServer(ctx context.Context, action string) error {
	_, err := e.audit.Append(ctx, sandboxmcp.AuditEntry{Action: action, Phase: sandboxmcp.PhaseOutcome, Namespace: e.cfg.Namespace, Actor: e.cfg.Actor, Detail: e.cfg.Version})
	return err
}
