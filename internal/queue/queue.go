// Package queue admits requests: so many at once, in turn between namespaces,
// first come first served within one, and no more waiting than is bearable.
package queue

import (
	"context"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Config bounds a queue.
type Config struct {
	MaxConcurrent int // admitted at once; at least 1
	MaxWaiting    int // waiting at once in one namespace; at least 1
}

// Queue admits requests. Its methods may be called concurrently.
type Queue struct {
	cfg Config

	mu        sync.Mutex
	active    int
	waiting   map[sandboxmcp.Namespace][]*Ticket
	turn      []sandboxmcp.Namespace // that have somebody waiting; the first is next
	processed int64
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	cfg.MaxConcurrent, cfg.MaxWaiting = max(cfg.MaxConcurrent, 1), max(cfg.MaxWaiting, 1)
	return &Queue{cfg: cfg, waiting: map[sandboxmcp.Namespace][]*Ticket{}}
}

// Ticket is a place in the queue, and later the admission itself.
type Ticket struct {
	q        *Queue
	ns       sandboxmcp.Namespace
	admitted chan struct{}
	done     bool // released or given up; guarded by q.mu
}

// Enter takes a place for a request of the namespace. It does not wait. When
// too many of the namespace are waiting already it fails with queue_full.
func (q *Queue) Enter(ns sandboxmcp.Namespace) (*Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &Ticket{q: q, ns: ns, admitted: make(chan struct{})}
	if q.active < q.cfg.MaxConcurrent && len(q.turn) == 0 {
		q.active++
		close(t.admitted)
		return t, nil
	}
	line := q.waiting[ns]
	if len(line) >= q.cfg.MaxWaiting {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d requests of namespace %s are waiting already and %d run; this one would be number %d", len(line), ns, q.active, len(line)+1).
			WithHint("ask again in a few seconds").With("place", len(line)+1).With("retry_after_seconds", 2)
	}
	if len(line) == 0 {
		q.turn = append(q.turn, ns)
	}
	q.waiting[ns] = append(line, t)
	return t, nil
}

// Wait waits for admission. When ctx ends first the place is given up and the
// error is ctx's. After nil, the caller calls Release exactly when it is done.
func (t *Ticket) Wait(ctx context.Context) error {
	select {
	case <-t.admitted:
		return nil
	default:
	}
	select {
	case <-t.admitted:
		return nil
	case <-ctx.Done():
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	select {
	case <-t.admitted: // both at once: the admission is passed on
		t.q.releaseLocked(t, false)
	default:
		t.q.leaveLocked(t)
	}
	return ctx.Err()
}

// Place tells how many requests of the namespace stand before this one, itself
// included; 0 once it is admitted.
func (t *Ticket) Place() int {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return slices.Index(t.q.waiting[t.ns], t) + 1
}

// Release ends an admission and admits the next. Further calls do nothing.
func (t *Ticket) Release() {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.q.releaseLocked(t, true)
}

func (q *Queue) releaseLocked(t *Ticket, processed bool) {
	if t.done {
		return
	}
	t.done = true
	if processed {
		q.processed++
	}
	q.active--
	for q.active < q.cfg.MaxConcurrent && len(q.turn) > 0 {
		ns := q.turn[0]
		line := q.waiting[ns]
		next := line[0]
		q.turn = q.turn[1:]
		if len(line) > 1 {
			q.waiting[ns] = line[1:]
			q.turn = append(q.turn, ns) // everybody else's turn comes first
		} else {
			delete(q.waiting, ns)
		}
		q.active++
		close(next.admitted)
	}
}

func (q *Queue) leaveLocked(t *Ticket) {
	t.done = true
	line := slices.DeleteFunc(q.waiting[t.ns], func(x *Ticket) bool { return x == t })
	if len(line) > 0 {
		q.waiting[t.ns] = line
		return
	}
	delete(q.waiting, t.ns)
	q.turn = slices.DeleteFunc(q.turn, func(ns sandboxmcp.Namespace) bool { return ns == t.ns })
}

// Stats tells the state of the queue.
func (q *Queue) Stats() sandboxmcp.QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := sandboxmcp.QueueStats{MaxConcurrent: q.cfg.MaxConcurrent, Active: q.active, TotalProcessed: q.processed}
	for _, line := range q.waiting {
		s.Queued += len(line)
	}
	return s
}
