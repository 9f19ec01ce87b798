package event

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxRefusals bounds the events of one run's refused destinations.
const maxRefusals = 32

// Run makes the events of a run. They have names, numbers and sizes, and never code, output
// or secrets.
type Run struct {
	ID        sandboxmcp.RequestID // empty: the event belongs to a session between two runs
	SessionID sandboxmcp.SessionID // empty: none
	Language  sandboxmcp.Language
	Namespace sandboxmcp.Namespace
}

// event returns an event with the data that every event of a run has, and more.
func (r Run) event(t sandboxmcp.EventType, message string, more map[string]any) sandboxmcp.Event {
	data := map[string]any{}
	if r.ID != "" {
		data["request_id"], data["language"] = r.ID, r.Language
	}
	if r.SessionID != "" {
		data["session_id"] = r.SessionID
	}
	maps.Copy(data, more)
	return sandboxmcp.Event{Type: t, Namespace: r.Namespace, Message: message, Data: data}
}

// Started is the event of a run that has started.
func (r Run) Started() sandboxmcp.Event {
	return r.event(sandboxmcp.EventExecutionStarted, string(r.Language)+" run started", nil)
}

// Failed is the event of a run that has no result.
func (r Run) Failed(code sandboxmcp.Code) sandboxmcp.Event {
	return r.event(sandboxmcp.EventExecutionFailed, string(r.Language)+" run could not be started or completed", map[string]any{"error": code})
}

// Injected is the event of a run that gets secrets.
func (r Run) Injected(keys []string) sandboxmcp.Event {
	e := Secrets(r.Namespace, "use", keys)
	return r.event(e.Type, e.Message, e.Data)
}

// Ended returns the events of a run that has ended, the one of its end last.
func (r Run) Ended(res *sandboxmcp.Result, limits sandboxmcp.Limits) []sandboxmcp.Event {
	run := string(r.Language) + " run"
	var all []sandboxmcp.Event
	exceeded := func(limit string, value any) {
		all = append(all, r.event(sandboxmcp.EventResourceExceeded, run+" went over "+limit, map[string]any{"limit": limit, "value": value}))
	}
	kind, how := sandboxmcp.EventExecutionFailed, " ended: "+string(res.Status)
	switch res.Status {
	case sandboxmcp.StatusCompleted:
		kind, how = sandboxmcp.EventExecutionCompleted, " completed"
	case sandboxmcp.StatusTimedOut:
		kind, how = sandboxmcp.EventExecutionTimeout, fmt.Sprintf(" was ended after %gs", limits.TimeoutSeconds)
	case sandboxmcp.StatusOutOfMemory:
		exceeded("max_ram_mb", limits.MaxRAMMB)
	case sandboxmcp.StatusOutputLimit:
		exceeded("max_output_bytes", limits.MaxOutputBytes)
	case sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled, sandboxmcp.StatusCancelled, sandboxmcp.StatusRejected, sandboxmcp.StatusRunning:
	}
	if n := len(res.Artifacts); n > 0 {
		all = append(all, r.event(sandboxmcp.EventArtifactSigned, strconv.Itoa(n)+" files of a "+run+" were signed", map[string]any{"artifacts": n}))
	}
	all = append(all, r.Refused(res.Network.Denied)...)
	return append(all, r.event(kind, run+how, map[string]any{"status": res.Status, "exit_code": res.ExitCode, "duration_ms": res.DurationMS}))
}

// Refused returns an event for each refused destination. The last one, after maxRefusals,
// counts the rest.
func (r Run) Refused(denied []sandboxmcp.DeniedRequest) []sandboxmcp.Event {
	var all []sandboxmcp.Event
	for i, d := range denied {
		if n := len(denied) - i; i == maxRefusals-1 && n > 1 {
			return append(all, r.event(sandboxmcp.EventEgressDenied, strconv.Itoa(n)+" more destinations were refused", map[string]any{"destinations": n}))
		}
		all = append(all, r.event(sandboxmcp.EventEgressDenied, d.Host+" was refused", map[string]any{"host": d.Host, "port": d.Port, "times": d.Times, "reason": d.Reason}))
	}
	return all
}

// Secrets is the event of an access to secrets of a namespace. access is "add", "delete" or
// "use".
func Secrets(ns sandboxmcp.Namespace, access string, keys []string) sandboxmcp.Event {
	return sandboxmcp.Event{
		Type: sandboxmcp.EventVaultAccessed, Namespace: ns, Message: access + " of " + strconv.Itoa(len(keys)) + " secrets",
		Data: map[string]any{"keys": keys, "access": access},
	}
}

// maxInstalled bounds the packages that an event names. The newest events are kept in memory, and an installation may have 1500
// packages with long names.
const maxInstalled = 100

// Installed is the event of packages that were installed. session is empty if all later runs of
// the namespace see them. If there are many, Data has the first of them and packages_total.
func Installed(ns sandboxmcp.Namespace, session sandboxmcp.SessionID, l sandboxmcp.Language, packages []string) sandboxmcp.Event {
	e := sandboxmcp.Event{
		Type: sandboxmcp.EventPackageInstalled, Namespace: ns, Message: strconv.Itoa(len(packages)) + " " + string(l) + " packages were installed",
		Data: map[string]any{"language": l, "packages": packages},
	}
	if n := len(packages); n > maxInstalled {
		e.Data["packages"], e.Data["packages_total"] = slices.Clone(packages[:maxInstalled]), n
	}
	if session != "" {
		e.Data["session_id"] = session
	}
	return e
}

// Reasons of the end of a session.
const (
	GoneTerminated = "terminated"
	GoneExpired    = "its time was up, or its sandbox ended"
	GoneStop       = "server stop"
)

// Session is the event of a session that was created or, if reason is not empty, has ended.
func Session(s sandboxmcp.Session, reason string) sandboxmcp.Event {
	data := map[string]any{"session_id": s.ID, "language": s.Language}
	if reason == "" {
		return sandboxmcp.Event{Type: sandboxmcp.EventSessionCreated, Namespace: s.Namespace, Message: string(s.Language) + " session created", Data: data}
	}
	data["reason"] = reason
	return sandboxmcp.Event{Type: sandboxmcp.EventSessionKilled, Namespace: s.Namespace, Message: string(s.Language) + " session is gone: " + reason, Data: data}
}
