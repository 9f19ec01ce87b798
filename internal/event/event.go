// Package event tells what is happening to whoever listens. Telling never
// waits: a listener that does not keep up loses the oldest events that it has
// not read, and is told how many. The last few are kept for those who ask
// later. Nothing of it is a record; that is the audit.
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
	// Kept is how many events are kept for those who ask later.
	Kept = 256
	// Unread is how many events wait for a listener until it loses some.
	Unread = 256
)

// Bus hands events on. Its methods may be called concurrently.
type Bus struct {
	now  func() time.Time
	mark string

	mu        sync.Mutex // guards what follows
	count     uint64
	kept      []sandboxmcp.Event // a ring, once it is full
	next      int                // where the ring goes on
	listeners map[*listener]struct{}
	closed    bool
}

type listener struct {
	ns sandboxmcp.Namespace // empty: all
	to chan sandboxmcp.Event
}

// New returns a bus on which nothing has happened. Now tells the time; nil is
// the machine's clock.
func New(now func() time.Time) *Bus {
	if now == nil {
		now = time.Now
	}
	mark := make([]byte, 4)
	_, _ = rand.Read(mark) // never fails: crypto/rand ends the program instead
	return &Bus{now: now, mark: hex.EncodeToString(mark), listeners: map[*listener]struct{}{}}
}

// Emit tells everybody. It sets ID and Timestamp, and never waits for who
// listens. Data must not be changed afterwards. After Close nobody hears it.
func (b *Bus) Emit(e sandboxmcp.Event) {
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

// giveLocked hands an event to a listener. Only who holds the bus's lock sends,
// so there is room after one was taken out.
func (l *listener) giveLocked(e sandboxmcp.Event) {
	select {
	case l.to <- e:
		return
	default:
	}
	select {
	case lost := <-l.to:
		e.Dropped = lost.Dropped + 1
	default: // it has read on just now
	}
	l.to <- e
}

// Subscribe returns a channel of what happens from now on in a namespace, or in
// all of them when it is empty. With recent it begins with what is kept. Stop
// ends it; it has to be called, and may be more than once. The channel is closed
// by stop and by [Bus.Close]; what it holds can still be read then.
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

// Recent returns what is kept of a namespace, or of all when it is empty, the
// oldest first.
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

// Close ends every subscription. Nothing is told any more.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for l := range maps.Clone(b.listeners) {
		b.endLocked(l)
	}
}
