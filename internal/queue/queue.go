// Package queue admits requests: a bounded number at once, in turn between namespaces, and
// in order of arrival within one. It also bounds the kernel tasks of the sandboxes of all
// admitted requests and sessions.
package queue

import (
	"context"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Config bounds a queue.
type Config struct {
	MaxConcurrent int // requests admitted at once; at least 1
	MaxWaiting    int // requests that wait at once in one namespace; at least 1
	MaxTasks      int // kernel tasks of all sandboxes together; 0: not bounded
}

// MostTasks returns the largest task limit that one sandbox may have: half of
// MaxTasks, and 0 where tasks are not bounded. Sessions hold the other half at
// most, so that every request fits once the runs before it have ended.
func (c Config) MostTasks() int { return c.MaxTasks / 2 }

// Queue admits requests. Its methods may be called concurrently.
type Queue struct {
	cfg Config

	mu        sync.Mutex
	active    int
	waiting   map[sandboxmcp.Namespace][]*Ticket
	turn      []sandboxmcp.Namespace // namespaces with waiting requests; the first is next
	short     []*Ticket              // admitted requests that wait for tasks; the oldest first
	tasks     int                    // held by admitted requests and sessions
	kept      int                    // part of tasks that sessions hold or have reserved
	processed int64
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	cfg.MaxConcurrent, cfg.MaxWaiting = max(cfg.MaxConcurrent, 1), max(cfg.MaxWaiting, 1)
	return &Queue{cfg: cfg, waiting: map[sandboxmcp.Namespace][]*Ticket{}}
}

// MostTasks returns the largest task limit that one sandbox may have; 0 where
// tasks are not bounded.
func (q *Queue) MostTasks() int { return q.cfg.MostTasks() }

// Ticket is a place in the queue, and later the admission itself.
type Ticket struct {
	q        *Queue
	ns       sandboxmcp.Namespace
	admitted chan struct{}

	// Guarded by q.mu.
	beside bool          // it takes none of the MaxConcurrent places
	done   bool          // released or given up
	tasks  int           // that it asks for, and holds once fits is closed
	fits   chan struct{} // closed when it holds its tasks; nil: it asks for none
}

// Enter takes a place for a request of the namespace. It does not wait. If too
// many requests of the namespace wait already, it fails with queue_full.
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

// EnterBeside returns a ticket that takes none of the MaxConcurrent places. Its
// Wait waits for tasks alone.
func (q *Queue) EnterBeside(ns sandboxmcp.Namespace) *Ticket {
	t := &Ticket{q: q, ns: ns, admitted: make(chan struct{}), beside: true}
	close(t.admitted)
	return t
}

// Wait waits for admission, and then until a sandbox of so many tasks fits. If
// ctx ends first, the place is given up and the error is ctx's. After nil, the
// caller calls Release when it is done.
func (t *Ticket) Wait(ctx context.Context, tasks int) error {
	select {
	case <-t.admitted:
	default:
		if err := t.waitAdmission(ctx); err != nil {
			return err
		}
	}
	fits := t.ask(tasks)
	select {
	case <-fits:
		return nil
	default:
	}
	select {
	case <-fits:
		return nil
	case <-ctx.Done():
		t.q.mu.Lock()
		defer t.q.mu.Unlock()
		t.q.releaseLocked(t, false) // it may have come to fit at the same time
		return ctx.Err()
	}
}

func (t *Ticket) waitAdmission(ctx context.Context) error {
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

// ask puts the ticket in line for tasks. It returns a channel that is closed once the
// ticket holds them.
func (t *Ticket) ask(tasks int) <-chan struct{} {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	fits := make(chan struct{})
	if t.done || tasks <= 0 || q.cfg.MaxTasks <= 0 {
		close(fits)
		return fits
	}
	t.tasks, t.fits = min(tasks, q.cfg.MaxTasks), fits
	q.short = append(q.short, t)
	q.fitLocked()
	return fits
}

// fitLocked gives tasks to the tickets in line, in their order, so that small requests do
// not keep a large one waiting for ever.
func (q *Queue) fitLocked() {
	for len(q.short) > 0 && q.tasks+q.short[0].tasks <= q.cfg.MaxTasks {
		t := q.short[0]
		q.short = q.short[1:]
		q.tasks += t.tasks
		close(t.fits)
	}
}

// Place returns how many requests stand before this one, itself included: of
// its namespace, or of those that wait for tasks. It returns 0 once the request
// is admitted, and for a nil ticket.
func (t *Ticket) Place() int {
	if t == nil {
		return 0
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if i := slices.Index(t.q.short, t); i >= 0 {
		return i + 1
	}
	return slices.Index(t.q.waiting[t.ns], t) + 1
}

// Leave gives up a place, or an admission that was not used: nothing is counted
// as processed. After Release, and on a nil ticket, it does nothing.
func (t *Ticket) Leave() {
	if t == nil {
		return
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	select {
	case <-t.admitted:
		t.q.releaseLocked(t, false)
	default:
		if !t.done {
			t.q.leaveLocked(t)
		}
	}
}

// Release ends an admission and admits the next. It may be called only after Wait
// returned nil. Further calls do nothing.
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
	q.giveUpTasksLocked(t)
	if t.beside {
		return
	}
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
			q.turn = append(q.turn, ns) // the other namespaces' turns come first
		} else {
			delete(q.waiting, ns)
		}
		q.active++
		close(next.admitted)
	}
}

// giveUpTasksLocked takes the tasks of a ticket back, or takes it out of the line.
func (q *Queue) giveUpTasksLocked(t *Ticket) {
	if t.fits == nil {
		return
	}
	if i := slices.Index(q.short, t); i >= 0 {
		q.short = slices.Delete(q.short, i, i+1)
	} else {
		q.tasks -= t.tasks
	}
	t.fits, t.tasks = nil, 0
	q.fitLocked()
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

// Share is the tasks that the sandbox of a session holds. A nil Share holds none. Its
// methods may be called concurrently.
type Share struct {
	q     *Queue
	tasks int
	held  bool // the tasks were a ticket's and are the share's; guarded by q.mu
	over  bool // guarded by q.mu
}

// Reserve reserves a share for a new session. It does not wait. If sessions would hold
// more than half of all tasks, it fails with max_sessions. The session's first ticket
// waits for the tasks, and Take moves them to the share.
func (q *Queue) Reserve(tasks int) (*Share, error) {
	if q.cfg.MaxTasks <= 0 {
		return &Share{q: q}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.cfg.MaxTasks - q.cfg.MostTasks()
	if q.kept+tasks > most {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeMaxSessions, "live sessions may have %d tasks; with the %d of this one that would exceed %d", q.kept, tasks, most).
			WithHint("terminate a session that is no longer needed, or set a lower max_processes").With("limit_tasks", most)
	}
	q.kept += tasks
	return &Share{q: q, tasks: tasks}, nil
}

// Take moves the tasks of a ticket to the share, which holds them until its Release.
func (s *Share) Take(t *Ticket) {
	if s == nil {
		return
	}
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if t.fits == nil || s.over || s.held {
		return
	}
	s.held, t.fits, t.tasks = true, nil, 0
}

// Release gives the share back. Further calls do nothing.
func (s *Share) Release() {
	if s == nil {
		return
	}
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	s.q.kept -= s.tasks
	if s.held {
		s.q.tasks -= s.tasks
		s.q.fitLocked()
	}
}

// Stats returns the state of the queue. Requests that wait for tasks count as
// queued.
func (q *Queue) Stats() sandboxmcp.QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := sandboxmcp.QueueStats{MaxConcurrent: q.cfg.MaxConcurrent, Active: q.active, TotalProcessed: q.processed}
	for _, line := range q.waiting {
		s.Queued += len(line)
	}
	for _, t := range q.short {
		s.Queued++
		if !t.beside {
			s.Active--
		}
	}
	return s
}
