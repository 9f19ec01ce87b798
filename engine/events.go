package engine

import (
	"context"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
)

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

// eventsOf makes the events of a run. They are emitted only for an admitted request whose
// intent is recorded.
func (x *execution) eventsOf() event.Run {
	return event.Run{ID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace}
}

// pressed emits a queue event if a request was refused, or if it waits in the second half
// of the queue. place is its position in the queue.
func (e *Engine) pressed(ns sandboxmcp.Namespace, place int, refused error) {
	bound := (e.cfg.MaxQueued + 1) / 2
	if refused == nil && place < bound {
		return
	}
	if !e.pressure.Due(ns, e.cfg.Now()) {
		return
	}
	q := e.queue.Stats()
	text := strconv.Itoa(place) + " requests wait"
	if refused != nil {
		text = "the queue is full: requests are refused"
	}
	e.events.Emit(sandboxmcp.Event{
		Type: sandboxmcp.EventQueueBackpressure, Namespace: ns, Message: text,
		Data: map[string]any{"queued": q.Queued, "active": q.Active, "refused": refused != nil},
	})
}
