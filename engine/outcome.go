package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// Reasons why the engine stops a program.
var (
	errTimeout = errors.New("its time is up")
	errOutput  = errors.New("it wrote too much")
	errAsked   = errors.New("it was cancelled")
)

const killLimit = 10 * time.Second // to kill the processes of a run and read the rest of their output

// outcome is what is known of a program that has ended, before it becomes a Result.
type outcome struct {
	exit           backend.Exit
	stopped        bool  // the engine stopped it, because of cause
	cause          error // why the run's context ended; nil: it has not
	stdout, stderr *stream.Capture
	masks          [2]*redact.Stream // of stdout and stderr
	report         kernel.Report
	isolation      *sandboxmcp.Isolation
	usage          backend.Usage
}

// attend prepares the outcome of a run that begins now. ctx ends on timeout, on too much
// output, or when the caller cancels; its cause says which. The caller must call stop.
func (e *Engine) attend(x *execution) (ctx context.Context, o *outcome, stop func()) {
	ctx, end := context.WithCancelCause(x.ctx)
	over := func() { end(errOutput) }
	mask := x.guard.masker
	o = &outcome{masks: [2]*redact.Stream{mask.Stream(), mask.Stream()}}
	o.stdout = stream.NewCapture(x.limits.MaxOutputBytes, x.req.Stdout, over, streamMask(o.masks[0]))
	o.stderr = stream.NewCapture(x.limits.MaxOutputBytes, x.req.Stderr, over, streamMask(o.masks[1]))
	x.streams = []*stream.Capture{o.stdout, o.stderr}
	x.shown = stream.NewResults(x.req.Shown, func(r sandboxmcp.RichResult) sandboxmcp.RichResult { return maskResult(mask, r) })
	x.started = e.cfg.Now()
	clock := time.AfterFunc(x.limits.Timeout(), func() { end(errTimeout) })
	return ctx, o, func() {
		clock.Stop()
		end(nil)
	}
}

// streamMask returns m as a mask, or a nil interface if m is nil.
func streamMask(m *redact.Stream) stream.Mask {
	if m == nil {
		return nil
	}
	return m
}

// classify returns the status, exit code and signal of a program. A program that the
// engine stopped has the engine's reason, one that the kernel killed for memory is
// out_of_memory. All else is the program's own result, whatever exit code it chose.
func (o *outcome) classify(req sandboxmcp.Request, limits sandboxmcp.Limits) (status sandboxmcp.Status, code int, signal string) {
	switch {
	case o.usage.OOMKills > 0 && !o.stopped && (o.exit.Signal != 0 || o.exit.Code != 0):
		return sandboxmcp.StatusOutOfMemory, sandboxmcp.ExitOutOfMemory, "SIGKILL"
	case o.stopped && errors.Is(o.cause, errOutput), !o.stopped && (o.stdout.Flooded() || o.stderr.Flooded()): // also if the program ended before all its output was read
		return sandboxmcp.StatusOutputLimit, sandboxmcp.ExitStopped, ""
	case o.stopped && errors.Is(o.cause, errTimeout), o.cpuSpent(limits):
		return sandboxmcp.StatusTimedOut, sandboxmcp.ExitStopped, ""
	case o.stopped:
		return sandboxmcp.StatusCancelled, sandboxmcp.ExitStopped, ""
	case o.exit.Signal != 0:
		return sandboxmcp.StatusSignalled, sandboxmcp.ExitSignalBase + o.exit.Signal, signalName(o.exit.Signal)
	case o.report.Syntax != nil && req.Display != sandboxmcp.DisplayNone:
		return sandboxmcp.StatusRejected, 1, ""
	case o.exit.Code == 0:
		return sandboxmcp.StatusCompleted, 0, ""
	default:
		return sandboxmcp.StatusFailed, o.exit.Code, ""
	}
}

// cpuSpent reports whether the kernel killed the program for its CPU time, a second bound
// besides the timeout.
func (o *outcome) cpuSpent(limits sandboxmcp.Limits) bool {
	return (o.exit.Signal == sigXCPU || o.exit.Signal == sigKill) && o.usage.CPU >= cpuTime(limits)
}

// cpuTime returns the CPU time that one process may use.
func cpuTime(l sandboxmcp.Limits) time.Duration {
	return time.Duration(int64(l.TimeoutSeconds*max(l.MaxCPUCores, 1))+2) * time.Second
}

// result builds the Result of an outcome.
func (x *execution) result(o *outcome) sandboxmcp.Result {
	o.stdout.End()
	o.stderr.End()
	x.keepSecrets(o)
	status, code, signal := o.classify(x.req, x.limits)
	stderr := o.stderr
	switch status { //nolint:exhaustive // other statuses add nothing to stderr
	case sandboxmcp.StatusTimedOut:
		stderr.Line("Execution timed out after " + strconv.FormatFloat(x.limits.TimeoutSeconds, 'f', -1, 64) + "s")
	case sandboxmcp.StatusRejected:
		s := o.report.Syntax
		stderr.Line("Validation failed: [REJECT] 1 issue(s)")
		stderr.Line("  L" + strconv.Itoa(s.Line) + ": " + s.Name + ": " + s.Message)
		x.metadata["validation"] = map[string]any{
			"valid": false, "verdict": "reject", "fixes_applied": []string{}, "language": x.req.Language,
			"issues": []map[string]any{{"line": s.Line, "col": s.Col, "message": s.Name + ": " + s.Message, "severity": "error", "rule": "syntax"}},
		}
	}
	for _, objects := range o.usage.Exceeded {
		stderr.Line("Ended for holding " + objects)
		x.metadata["exceeded"] = objects
	}
	if o.usage.OOMKills > 0 && status != sandboxmcp.StatusOutOfMemory {
		x.metadata["oom_kills"] = o.usage.OOMKills // only child processes were killed
	}
	if len(x.clamped) > 0 {
		x.metadata["clamped"] = x.clamped
	}
	u := o.usage
	return sandboxmcp.Result{
		RequestID: x.req.ID, Success: status == sandboxmcp.StatusCompleted, ExitCode: code,
		Stdout: o.stdout.Text(), Stderr: stderr.Text(),
		DurationMS: milliseconds(x.ended.Sub(x.admitted)), Language: x.req.Language, Artifacts: []sandboxmcp.Artifact{},
		Usage: sandboxmcp.ResourceUsage{
			PeakRAMMB: float64(u.PeakMemory*100>>20) / 100, CPUSeconds: u.CPU.Seconds(), PeakTasks: u.PeakTasks,
			WallSeconds: x.ended.Sub(x.started).Seconds(), MaxTasks: x.limits.MaxTasks(),
		},
		Namespace: x.who.Namespace, Metadata: x.metadata,
		Status: status, Signal: signal, Backend: x.req.Backend, SessionID: x.sessionID(), StateLost: x.stateLost,
		StdoutTruncated: o.stdout.Cut(), StderrTruncated: o.stderr.Cut(),
		Results: o.report.Results, Error: o.report.Error,
		Network:   sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}},
		Isolation: o.isolation,
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// heard is a driver's report from the private channel. err is set if it was not read to
// its end.
type heard struct {
	report kernel.Report
	err    error
}

// listen reads the driver's report from the private channel.
func listen(r backend.Running, show func(sandboxmcp.RichResult)) <-chan heard {
	c := make(chan heard, 1)
	ch := r.Channel()
	if ch == nil {
		c <- heard{report: kernel.Report{Results: []sandboxmcp.RichResult{}}}
		return c
	}
	go func() {
		rep, err := kernel.Read(ch, show)
		c <- heard{rep, err}
	}()
	return c
}

// gather waits for the end of a dead program's streams and channel. If one of them is not
// read to its end, it fails with execution_failed. ctx bounds the wait.
func gather(ctx context.Context, r backend.Running, report <-chan heard) (kernel.Report, error) {
	err := r.Drain(ctx)
	var h heard
	select {
	case h = <-report:
	case <-ctx.Done():
		h.err = ctx.Err()
	}
	if err = errors.Join(err, h.err); err != nil {
		return kernel.Report{}, session.OutputLost(err)
	}
	return h.report, nil
}
