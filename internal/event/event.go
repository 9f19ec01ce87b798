// Package event publishes what happens in a process to its subscribers. Publishing never
// blocks: a slow subscriber loses the oldest events that it has not read, and is told how
// many. The newest events are kept for later subscribers. Events are not a durable record;
// the audit is.
package event

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	// Kept is the number of events that are kept for later subscribers.
	Kept = 256
	// Unread is the number of unread events that a subscriber may have. A further event
	// replaces the oldest of them.
	Unread = 256
)

// Bus passes events from publishers to subscribers. Its methods may be called
// concurrently.
type Bus struct {
	now  func() time.Time
	mark string

	mu        sync.Mutex // guards the fields below
	count     uint64
	kept      []sandboxmcp.Event // a ring, once it is full
	next      int                // index of the oldest event once the ring is full
	listeners map[*listener]struct{}
	closed    bool
}

type listener struct {
	ns sandboxmcp.Namespace // empty: all
	to chan sandboxmcp.Event
}

// New returns a bus without events. now returns the time; nil: time.Now.
func New(now func() time.Time) *Bus {
	if now == nil {
		now = time.Now
	}
	mark := make([]byte, 4)
	_, _ = rand.Read(mark) // never fails: crypto/rand ends the program instead
	return &Bus{now: now, mark: hex.EncodeToString(mark), listeners: map[*listener]struct{}{}}
}

// Emit publishes events in their order and sets their ID and Timestamp. It never waits for
// a subscriber. The caller must not change Data afterwards. After Close it does nothing.
func (b *Bus) Emit(events ...sandboxmcp.Event) {
	for _, e := range events {
		b.emit(e)
	}
}

func (b *Bus) emit(e sandboxmcp.Event) {
	if e.Data == nil {
		e.Data = map[string]any{}
	}
	e.Dropped = 0
	e.Timestamp = b.now().UTC().Round(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.count++
	e.ID = b.mark + "-" + strconv.FormatUint(b.count, 10)
	if len(b.kept) < Kept {
		b.kept = append(b.kept, e)
	} else {
		b.kept[b.next] = e
		b.next = (b.next + 1) % Kept
	}
	for l := range b.listeners {
		if l.hears(e) {
			l.giveLocked(e)
		}
	}
}

func (l *listener) hears(e sandboxmcp.Event) bool { return l.ns == "" || l.ns == e.Namespace }

// giveLocked sends an event to a listener. If the channel is full, it first drops the
// oldest event. The caller holds the bus's lock, so no other goroutine sends.
func (l *listener) giveLocked(e sandboxmcp.Event) {
	select {
	case l.to <- e:
		return
	default:
	}
	select {
	case lost := <-l.to:
		e.Dropped = lost.Dropped + 1
	default: // the subscriber has read an event meanwhile, so there is room
	}
	l.to <- e
}

// Subscribe returns a channel of the events of a namespace from now on, or of all
// namespaces if ns is empty. If recent is set, the channel begins with the kept events.
// The caller calls stop, once or more often. stop and [Bus.Close] close the channel; the
// events in it can still be read.
func (b *Bus) Subscribe(ns sandboxmcp.Namespace, recent bool) (events <-chan sandboxmcp.Event, stop func()) {
	l := &listener{ns: ns, to: make(chan sandboxmcp.Event, Unread)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if recent {
		for _, e := range b.recentLocked(ns) {
			l.giveLocked(e)
		}
	}
	if b.closed {
		close(l.to)
		return l.to, func() {}
	}
	b.listeners[l] = struct{}{}
	return l.to, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.endLocked(l)
	}
}

func (b *Bus) endLocked(l *listener) {
	if _, there := b.listeners[l]; there {
		delete(b.listeners, l)
		close(l.to)
	}
}

// Recent returns the kept events of a namespace, or of all if ns is empty, the oldest
// first.
func (b *Bus) Recent(ns sandboxmcp.Namespace) []sandboxmcp.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recentLocked(ns)
}

func (b *Bus) recentLocked(ns sandboxmcp.Namespace) []sandboxmcp.Event {
	l := listener{ns: ns}
	out := []sandboxmcp.Event{}
	for i := range b.kept {
		if e := b.kept[(b.next+i)%len(b.kept)]; l.hears(e) {
			out = append(out, e)
		}
	}
	return out
}

// Close ends every subscription. Later events are not published.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for l := range maps.Clone(b.listeners) {
		b.endLocked(l)
	}
}
