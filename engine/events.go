package engine

import (
	"github.com/sandboxmcp/sandboxmcp"
)

// emit tells whoever listens that something has happened. It never waits. What
// it is told is names, numbers and sizes: never code, output or a secret. Data
// must not be changed afterwards.
func (e *Engine) emit(t sandboxmcp.EventType, ns sandboxmcp.Namespace, message string, data map[string]any) {
	e.events.Emit(sandboxmcp.Event{Type: t, Namespace: ns, Message: message, Data: data})
}

// Subscribe returns a channel of what happens from now on in a namespace, or in
// all of them when it is empty. The engine never waits for who reads it: one
// that does not keep up loses the oldest of 256 events, and the Dropped of those
// after say how many. Stop has to be called in the end. The channel is closed by
// it and by [Engine.Close]; what it holds can still be read then.
func (e *Engine) Subscribe(ns sandboxmcp.Namespace) (events <-chan sandboxmcp.Event, stop func()) {
	return e.events.Subscribe(ns, false)
}

// Follow is [Engine.Subscribe] that begins with the events that are kept: the
// last 256.
func (e *Engine) Follow(ns sandboxmcp.Namespace) (events <-chan sandboxmcp.Event, stop func()) {
	return e.events.Subscribe(ns, true)
}

// Events returns the last events of a namespace, or of all when it is empty, of
// the last 256 of the engine, the oldest first.
func (e *Engine) Events(ns sandboxmcp.Namespace) []sandboxmcp.Event { return e.events.Recent(ns) }
