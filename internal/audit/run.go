package audit

import (
	"fmt"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

// Run makes the entries of a run. Like is what all of them have: its ids, language,
// namespace and actor.
type Run struct {
	Like sandboxmcp.AuditEntry
}

// Entry returns an entry of the run about something that has happened.
func (r Run) Entry(action, detail string) *sandboxmcp.AuditEntry {
	e := r.Like
	e.Action, e.Phase, e.Detail = action, sandboxmcp.PhaseOutcome, detail
	return &e
}

// Intent returns the entry for code that is about to run.
func (r Run) Intent(code, sha256, backend string, limits sandboxmcp.Limits) *sandboxmcp.AuditEntry {
	e := r.Entry(Execute, string(r.Like.Language)+": "+strconv.Itoa(len(code))+" bytes")
	e.Phase = sandboxmcp.PhaseIntent
	e.Metadata = map[string]any{"code_sha256": sha256, "code_bytes": len(code), "backend": backend, "limits": limits}
	return e
}

// Failed returns the entry for a run that has no result.
func (r Run) Failed(code sandboxmcp.Code) *sandboxmcp.AuditEntry {
	e, no := r.Entry(Execute, string(r.Like.Language)+": "+string(code)), false
	e.Success = &no
	return e
}

// Output is the output of a run. The sizes are of all that it wrote, and the hashes of what
// its result shows.
type Output struct {
	StdoutBytes, StderrBytes   int64
	StdoutSHA256, StderrSHA256 string
}

// Ended returns the entries for the result of a run: its outcome, what stopped it, and how
// many files were signed. They refer to res.
func (r Run) Ended(res *sandboxmcp.Result, o Output, limits sandboxmcp.Limits) []*sandboxmcp.AuditEntry {
	l := r.Like.Language
	e := r.Entry(Execute, fmt.Sprintf("%s: exit=%d duration=%.0fms", l, res.ExitCode, res.DurationMS))
	e.ExitCode, e.DurationMS, e.Success, e.Usage = &res.ExitCode, &res.DurationMS, &res.Success, &res.Usage
	e.Metadata = map[string]any{
		"status": res.Status, "stdout_bytes": o.StdoutBytes, "stderr_bytes": o.StderrBytes, "stdout_sha256": o.StdoutSHA256, "stderr_sha256": o.StderrSHA256,
		"artifacts": len(res.Artifacts), "tier": res.Isolation.Tier,
	}
	all := []*sandboxmcp.AuditEntry{e}
	switch res.Status {
	case sandboxmcp.StatusTimedOut:
		all = append(all, r.Entry("timeout", fmt.Sprintf("%s: after %gs", l, limits.TimeoutSeconds)))
	case sandboxmcp.StatusOutOfMemory:
		all = append(all, r.Entry("resource_exceeded", fmt.Sprintf("%s: max_ram_mb %d", l, limits.MaxRAMMB)))
	case sandboxmcp.StatusOutputLimit:
		all = append(all, r.Entry("resource_exceeded", fmt.Sprintf("%s: max_output_bytes %d", l, limits.MaxOutputBytes)))
	case sandboxmcp.StatusRejected:
		all = append(all, r.Entry("validation_failed", string(l)+": syntax"))
	case sandboxmcp.StatusCompleted, sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled, sandboxmcp.StatusCancelled, sandboxmcp.StatusRunning:
	}
	if n := len(res.Artifacts); n > 0 {
		all = append(all, r.Entry("artifact_signed", strconv.Itoa(n)+" files"))
	}
	return all
}
