package run

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// Outcome is what is known of a program or cell that has ended.
type Outcome struct {
	Report    kernel.Report
	Exit      backend.Exit
	Stopped   bool  // it was interrupted or killed, because of Cause
	Cause     error // why its context ended; nil: it has not
	StateLost bool  // an interpreter has ended: the variables of earlier cells are lost

	StateLostIn []sandboxmcp.Language // languages of which that is true; nil: all that were used
	Isolation   *sandboxmcp.Isolation
	Usage       backend.Usage
	Started     time.Time
	Ended       time.Time
}

// Result returns what the run determines of its result; the caller adds the rest. It is called
// once, after End.
func (r *Run) Result(o *Outcome) sandboxmcp.Result {
	status, code, signal := r.classify(o)
	meta := map[string]any{}
	if len(o.Report.Fixes) > 0 {
		meta["validation"] = map[string]any{
			"valid": true, "verdict": "fixed", "fixes_applied": o.Report.Fixes, "language": r.Language, "issues": []map[string]any{},
		}
	}
	if o.Report.Cut {
		meta["results_truncated"] = true
	}
	switch status { //nolint:exhaustive // other statuses add nothing to stderr
	case sandboxmcp.StatusTimedOut:
		r.Stderr.Line("Execution timed out after " + strconv.FormatFloat(r.Limits.TimeoutSeconds, 'f', -1, 64) + "s")
	case sandboxmcp.StatusRejected:
		s := o.Report.Syntax
		r.Stderr.Line("Validation failed: [REJECT] 1 issue(s)")
		r.Stderr.Line("  L" + strconv.Itoa(s.Line) + ": " + s.Name + ": " + s.Message)
		meta["validation"] = map[string]any{
			"valid": false, "verdict": "reject", "fixes_applied": []string{}, "language": r.Language,
			"issues": []map[string]any{{"line": s.Line, "col": s.Col, "message": s.Name + ": " + s.Message, "severity": "error", "rule": "syntax"}},
		}
	}
	for _, objects := range o.Usage.Exceeded {
		r.Stderr.Line("Ended for holding " + objects)
		meta["exceeded"] = objects
	}
	if o.Usage.OOMKills > 0 && status != sandboxmcp.StatusOutOfMemory {
		meta["oom_kills"] = o.Usage.OOMKills // only child processes were killed
	}
	return sandboxmcp.Result{
		Success: status == sandboxmcp.StatusCompleted, Status: status, ExitCode: code, Signal: signal, StateLost: o.StateLost, StateLostIn: o.StateLostIn,
		Stdout: r.Stdout.Text(), Stderr: r.Stderr.Text(), StdoutTruncated: r.Stdout.Cut(), StderrTruncated: r.Stderr.Cut(),
		Results: o.Report.Results, Error: o.Report.Error, Isolation: o.Isolation, Language: r.Language, Metadata: meta,
		Usage: sandboxmcp.ResourceUsage{
			PeakRAMMB: float64(o.Usage.PeakMemory*100>>20) / 100, CPUSeconds: o.Usage.CPU.Seconds(), PeakTasks: o.Usage.PeakTasks,
			WallSeconds: o.Ended.Sub(o.Started).Seconds(), MaxTasks: r.Limits.MaxTasks(),
		},
	}
}

// classify returns the status, exit code and signal of a program. A program that the server
// stopped has the server's reason, one that the kernel killed for memory is out_of_memory. All
// else is the program's own result, whatever exit code it chose.
func (r *Run) classify(o *Outcome) (status sandboxmcp.Status, code int, signal string) {
	switch {
	case o.Usage.OOMKills > 0 && !o.Stopped && (o.Exit.Signal != 0 || o.Exit.Code != 0):
		return sandboxmcp.StatusOutOfMemory, sandboxmcp.ExitOutOfMemory, "SIGKILL"
	case o.Stopped && errors.Is(o.Cause, errOutput), !o.Stopped && (r.Stdout.Flooded() || r.Stderr.Flooded()): // also if the program ended before all its output was read
		return sandboxmcp.StatusOutputLimit, sandboxmcp.ExitStopped, ""
	case o.Stopped && errors.Is(o.Cause, errTimeout), o.cpuSpent(r.Limits):
		return sandboxmcp.StatusTimedOut, sandboxmcp.ExitStopped, ""
	case o.Stopped:
		return sandboxmcp.StatusCancelled, sandboxmcp.ExitStopped, ""
	case o.Exit.Signal != 0:
		return sandboxmcp.StatusSignalled, sandboxmcp.ExitSignalBase + o.Exit.Signal, signalName(o.Exit.Signal)
	case o.Report.Syntax != nil && r.Display.ShowsValues():
		return sandboxmcp.StatusRejected, 1, ""
	case o.Exit.Code == 0:
		return sandboxmcp.StatusCompleted, 0, ""
	default:
		return sandboxmcp.StatusFailed, o.Exit.Code, ""
	}
}

// cpuSpent reports whether the kernel killed the program for its CPU time, a second bound
// besides the timeout.
func (o *Outcome) cpuSpent(limits sandboxmcp.Limits) bool {
	return (o.Exit.Signal == sigXCPU || o.Exit.Signal == sigKill) && o.Usage.CPU >= CPUTime(limits)
}

// CPUTime returns the CPU time that one process of a run may use.
func CPUTime(l sandboxmcp.Limits) time.Duration {
	return time.Duration(int64(l.TimeoutSeconds*max(l.MaxCPUCores, 1))+2) * time.Second
}

// Cancelled is the error of a request whose context has ended before it ran.
func Cancelled(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled before it ran").WithCause(context.Cause(ctx))
}

// StartError explains why a program could not be started.
func StartError(ctx context.Context, err error) error {
	var e *sandboxmcp.Error
	switch {
	case errors.As(err, &e):
		return err
	case ctx.Err() != nil:
		return Cancelled(ctx)
	default:
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the program could not be started: %s", err).WithCause(err)
	}
}

// notExecuted is the error of a program whose interpreter was not executed.
func notExecuted(err error) error {
	e := sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the program could not be started").WithCause(err)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) { // asking again does not help
		return e.WithHint("run `sandboxmcp doctor`: sandboxes cannot execute the interpreter")
	}
	return e
}

// OutputLost is the error of a program whose output could not be read to its end.
func OutputLost(err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the program ran, but its output could not be read to the end: %s", err).WithCause(err)
}
