package engine

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
)

// emit publishes an event and never blocks. Events hold names, numbers and sizes, never
// code, output or secrets. data must not be changed afterwards.
func (e *Engine) emit(t sandboxmcp.EventType, ns sandboxmcp.Namespace, message string, data map[string]any) {
	e.events.Emit(sandboxmcp.Event{Type: t, Namespace: ns, Message: message, Data: data})
}

// Subscribe returns a channel of events from now on. It accepts EveryNamespace.
// Publishing never blocks: a slow subscriber loses the oldest of its 256 buffered events,
// and Dropped of its next event says how many. The caller must call stop, which closes
// the channel. [Engine.Close] closes it too. Buffered events can be read after that.
func (e *Engine) Subscribe(c sandboxmcp.Caller) (events <-chan sandboxmcp.Event, stop func()) {
	return e.events.Subscribe(e.listed(c), false)
}

// Follow returns a channel of events from now on. If recent is set, the last 256 events
// come first. The end of ctx and [Engine.Close] close the channel. Slow readers lose
// events as with Subscribe. It accepts EveryNamespace.
func (e *Engine) Follow(ctx context.Context, c sandboxmcp.Caller, recent bool) (<-chan sandboxmcp.Event, error) {
	events, stop := e.events.Subscribe(e.listed(c), recent)
	context.AfterFunc(ctx, stop)
	return events, nil
}

// Events returns the caller's share of the last 256 events, oldest first. It accepts
// EveryNamespace.
func (e *Engine) Events(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Event, error) {
	return e.events.Recent(e.listed(c)), nil
}

// emitStarted emits that a run has started. emitStarted, emitEnded and emitFailed are
// only for admitted requests whose intent is recorded.
func (e *Engine) emitStarted(x *execution) {
	e.emit(sandboxmcp.EventExecutionStarted, x.who.Namespace, string(x.req.Language)+" run started", x.names())
}

func (e *Engine) emitEnded(x *execution, res *sandboxmcp.Result) {
	ns, run := x.who.Namespace, string(x.req.Language)+" run"
	exceeded := func(limit string, value any) {
		data := x.names()
		data["limit"], data["value"] = limit, value
		e.emit(sandboxmcp.EventResourceExceeded, ns, run+" went over "+limit, data)
	}
	kind, how := sandboxmcp.EventExecutionFailed, " ended: "+string(res.Status)
	switch res.Status {
	case sandboxmcp.StatusCompleted:
		kind, how = sandboxmcp.EventExecutionCompleted, " completed"
	case sandboxmcp.StatusTimedOut:
		kind, how = sandboxmcp.EventExecutionTimeout, fmt.Sprintf(" was ended after %gs", x.limits.TimeoutSeconds)
	case sandboxmcp.StatusOutOfMemory:
		exceeded("max_ram_mb", x.limits.MaxRAMMB)
	case sandboxmcp.StatusOutputLimit:
		exceeded("max_output_bytes", x.limits.MaxOutputBytes)
	case sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled, sandboxmcp.StatusCancelled, sandboxmcp.StatusRejected, sandboxmcp.StatusRunning:
	}
	if n := len(res.Artifacts); n > 0 {
		data := x.names()
		data["artifacts"] = n
		e.emit(sandboxmcp.EventArtifactSigned, ns, strconv.Itoa(n)+" files of a "+run+" were signed", data)
	}
	for _, refused := range gateway.RefusalEvents(res.Network.Denied, sandboxmcp.Event{Namespace: ns, Data: x.names()}) {
		e.events.Emit(refused)
	}
	data := x.names()
	data["status"], data["exit_code"], data["duration_ms"] = res.Status, res.ExitCode, res.DurationMS
	e.emit(kind, ns, run+how, data)
}

// emitSecrets emits that secrets were added, deleted or injected into a program.
func (e *Engine) emitSecrets(ns sandboxmcp.Namespace, what string, keys []string, data map[string]any) {
	data["keys"], data["access"] = keys, what
	e.emit(sandboxmcp.EventVaultAccessed, ns, what+" of "+strconv.Itoa(len(keys))+" secrets", data)
}

func (e *Engine) emitFailed(x *execution, cause error) {
	data := x.names()
	data["error"] = sandboxmcp.CodeOf(cause)
	e.emit(sandboxmcp.EventExecutionFailed, x.who.Namespace, string(x.req.Language)+" run could not be started or completed", data)
}

// names returns the data that every event of a run has.
func (x *execution) names() map[string]any {
	names := map[string]any{"request_id": x.req.ID, "language": x.req.Language}
	if x.req.SessionID != "" {
		names["session_id"] = x.req.SessionID
	}
	return names
}

// emitSession emits that a session was created or, if reason is not empty, that it has
// ended.
func (e *Engine) emitSession(s sandboxmcp.Session, reason string) {
	data := map[string]any{"session_id": s.ID, "language": s.Language}
	if reason == "" {
		e.emit(sandboxmcp.EventSessionCreated, s.Namespace, string(s.Language)+" session created", data)
		return
	}
	data["reason"] = reason
	e.emit(sandboxmcp.EventSessionKilled, s.Namespace, string(s.Language)+" session is gone: "+reason, data)
}

// Reasons of session_killed events.
const (
	goneTerminated = "terminated"
	goneExpired    = "its time was up, or its sandbox ended"
	goneStop       = "server stop"
)

// pressure holds when a queue event was last emitted for each namespace. At most one is
// emitted a second, because refused callers retry.
type pressure struct {
	mu   sync.Mutex
	told map[sandboxmcp.Namespace]time.Time
}

const (
	pressureEvery = time.Second
	pressureNames = 1024 // namespaces that are remembered
)

// pressed emits a queue event if a request was refused, or if it waits in the second half
// of the queue. place is its position in the queue.
func (e *Engine) pressed(ns sandboxmcp.Namespace, place int, refused error) {
	bound := (e.cfg.MaxQueued + 1) / 2
	if refused == nil && place < bound {
		return
	}
	if !e.pressure.due(ns, e.cfg.Now()) {
		return
	}
	q := e.queue.Stats()
	data := map[string]any{"queued": q.Queued, "active": q.Active, "refused": refused != nil}
	text := strconv.Itoa(place) + " requests wait"
	if refused != nil {
		text = "the queue is full: requests are refused"
	}
	e.emit(sandboxmcp.EventQueueBackpressure, ns, text, data)
}

func (p *pressure) due(ns sandboxmcp.Namespace, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, told := p.told[ns]; told && now.Sub(last) < pressureEvery {
		return false
	}
	if len(p.told) >= pressureNames {
		clear(p.told)
	}
	if p.told == nil {
		p.told = map[sandboxmcp.Namespace]time.Time{}
	}
	p.told[ns] = now
	return true
}
