// Package queue admits a bounded number of requests at a time. Namespaces take turns, and the requests of one
// namespace are admitted in the order of their arrival. A caller with several namespaces has one turn for all of
// them. A namespace with an admitted request cannot take the last free place while another namespace has none,
// because requests may take an hour. The queue also bounds the kernel tasks of the sandboxes of all admitted
// requests and sessions.
package queue

import (
	"context"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Config bounds a queue.
type Config struct {
	MaxConcurrent int // admitted requests at a time; at least 1
	MaxWaiting    int // waiting requests of one namespace, or of a caller with several; at least 1
	MaxTasks      int // kernel tasks of all sandboxes together; 0: not bounded

	// MaxBytes bounds the memory of the waiting requests of one namespace, or of a caller with several. A single
	// waiting request may hold more. 0: not bounded.
	MaxBytes int64

	// Known are namespaces in use. The queue also remembers the last ones whose requests have entered it. While one
	// of these has no place, a namespace or caller that has places cannot take the last free one. If MaxConcurrent
	// is 1, no place is kept. If there are several known namespaces, none of them can take all tasks; see leftLocked.
	Known []sandboxmcp.Namespace

	// Holders maps a namespace to the caller that alone may use it, if that caller has several namespaces. No place
	// and no tasks are kept from a caller for these namespaces, because no other caller could use them.
	Holders map[sandboxmcp.Namespace]string
}

// maxSeen bounds the namespaces that a queue remembers. Tokens may name any number of them.
const maxSeen = 64

// MostTasks returns the largest task limit that one sandbox may have: half of MaxTasks, or
// 0 if tasks are not bounded. Sessions hold at most the other half. So every request fits
// once the runs before it have ended.
func (c Config) MostTasks() int { return c.MaxTasks / 2 }

// Queue admits requests. Its methods may be called concurrently.
type Queue struct {
	cfg Config

	mu        sync.Mutex
	active    int
	has       map[holder]holding
	seen      []sandboxmcp.Namespace // namespaces that are not in cfg.Known, oldest first
	waiting   map[holder][]*Ticket   // lines; see lineOf
	turn      []holder               // those with waiting requests; the first is next
	short     []*Ticket              // admitted requests that wait for tasks, oldest first
	tasks     int                    // held by admitted requests and sessions
	kept      int                    // part of tasks that sessions hold or have reserved
	passing   int                    // part of tasks: of runs that were admitted before a large request that came earlier; see passesLocked
	processed int64
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	cfg.MaxConcurrent, cfg.MaxWaiting = max(cfg.MaxConcurrent, 1), max(cfg.MaxWaiting, 1)
	return &Queue{cfg: cfg, has: map[holder]holding{}, waiting: map[holder][]*Ticket{}}
}

// MostTasks returns the largest task limit that one sandbox may have; 0: tasks are not
// bounded.
func (q *Queue) MostTasks() int { return q.cfg.MostTasks() }

// SetBounds replaces MaxConcurrent and MaxWaiting. Requests that were admitted or wait already stay in the queue.
func (q *Queue) SetBounds(maxConcurrent, maxWaiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg.MaxConcurrent, q.cfg.MaxWaiting = max(maxConcurrent, 1), max(maxWaiting, 1)
	q.admitLocked()
}

// SetKnown replaces [Config.Known] and [Config.Holders]. Requests that were admitted already stay admitted.
func (q *Queue) SetKnown(known []sandboxmcp.Namespace, holders map[sandboxmcp.Namespace]string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg.Known, q.cfg.Holders = known, holders
	q.admitLocked()
	q.fitLocked()
}

// seeLocked remembers the namespace of a request. It does not remember EveryNamespace: no place is kept for an operator.
func (q *Queue) seeLocked(ns sandboxmcp.Namespace) {
	if ns == sandboxmcp.EveryNamespace || slices.Contains(q.cfg.Known, ns) || slices.Contains(q.seen, ns) {
		return
	}
	if len(q.seen) == maxSeen {
		q.seen = slices.Delete(q.seen, 0, 1)
	}
	q.seen = append(q.seen, ns)
}

// keptLocked returns how many places are kept from a request for other namespaces.
func (q *Queue) keptLocked(who sandboxmcp.Caller) int {
	without := func(other sandboxmcp.Namespace) bool { return q.has[holder{ns: other}].places == 0 }
	if q.hasLocked(who).places > 0 && q.othersLocked(who, without) {
		return min(1, q.cfg.MaxConcurrent/2)
	}
	return 0
}

// roomLocked reports whether there is a place for a request.
func (q *Queue) roomLocked(who sandboxmcp.Caller) bool {
	return q.active < q.cfg.MaxConcurrent && q.active+q.keptLocked(who) < q.cfg.MaxConcurrent
}

// admitOneLocked gives a place to a ticket.
func (q *Queue) admitOneLocked(t *Ticket) {
	q.active++
	q.addLocked(t.who, holding{places: 1})
	close(t.admitted)
}

// Ticket is a place in the queue, and later the admission itself.
type Ticket struct {
	q        *Queue
	who      sandboxmcp.Caller
	bytes    int64 // memory that the request holds while it waits
	admitted chan struct{}

	// Guarded by q.mu.
	beside bool          // it takes none of the MaxConcurrent places
	done   bool          // released or given up
	tasks  int           // requested tasks; the ticket holds them once fits is closed
	passed int           // what the ticket adds to q.passing: its tasks, or 0
	fits   chan struct{} // closed when the ticket holds its tasks; nil: none were requested
}

// Enter adds a request of a caller to the queue. bytes is the memory that the request holds while it waits.
// Enter does not wait. If too many requests of the namespace or caller wait already, or they hold too many
// bytes, it fails with queue_full.
func (q *Queue) Enter(who sandboxmcp.Caller, bytes int64) (*Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ns, own := who.Namespace, lineOf(who)
	t := &Ticket{q: q, who: who, bytes: bytes, admitted: make(chan struct{})}
	q.seeLocked(ns)
	line := q.waiting[own]
	before := func(t *Ticket) bool { return t.who.Namespace == ns }
	if q.roomLocked(who) && !slices.ContainsFunc(line, before) { // the requests that wait are of other namespaces, which have no room
		q.admitOneLocked(t)
		return t, nil
	}
	whose := "namespace " + string(ns)
	if who.Holder != "" {
		whose = "this caller"
	}
	if len(line) >= q.cfg.MaxWaiting {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d requests of %s are waiting already and %d run; this one would be number %d", len(line), whose, q.active, len(line)+1).
			WithHint("ask again in a few seconds").With("place", len(line)+1).With("retry_after_seconds", 2)
	}
	if held := bytesOf(line); len(line) > 0 && q.cfg.MaxBytes > 0 && held+bytes > q.cfg.MaxBytes {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d requests of %s with %d MiB of code and input are waiting already; with the %d MiB of this one they would exceed %d MiB", len(line), whose, held>>20, bytes>>20, q.cfg.MaxBytes>>20).
			WithHint("ask again in a few seconds, or put large input into files of a session").With("place", len(line)+1).With("retry_after_seconds", 2)
	}
	if len(line) == 0 {
		q.turn = append(q.turn, own)
	}
	q.waiting[own] = append(line, t)
	return t, nil
}

func bytesOf(line []*Ticket) (sum int64) {
	for _, t := range line {
		sum += t.bytes
	}
	return sum
}

// EnterBeside returns a ticket that takes none of the MaxConcurrent places. Its Wait waits
// for tasks only.
func (q *Queue) EnterBeside(who sandboxmcp.Caller) *Ticket {
	t := &Ticket{q: q, who: who, admitted: make(chan struct{}), beside: true}
	close(t.admitted)
	return t
}

// Wait waits for admission, and then until a sandbox with that task limit fits. If ctx ends
// first, the ticket leaves the queue and the error is that of ctx. If Wait returns nil, the
// caller calls Release when the request has ended.
func (t *Ticket) Wait(ctx context.Context, tasks int) error { return t.WaitTold(ctx, tasks, nil) }

// WaitTold is Wait, but calls short if the request is admitted and its sandbox does not fit at once. short may
// end ctx, so that the request does not wait. It may be nil.
func (t *Ticket) WaitTold(ctx context.Context, tasks int, short func()) error {
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
	if short != nil {
		short()
	}
	select {
	case <-fits:
		return nil
	case <-ctx.Done():
		t.q.mu.Lock()
		defer t.q.mu.Unlock()
		t.q.releaseLocked(t, false) // the ticket may have got its tasks at the same moment
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
	case <-t.admitted: // the ticket was admitted at the same moment; pass the admission on
		t.q.releaseLocked(t, false)
	default:
		t.q.leaveLocked(t)
	}
	return ctx.Err()
}

// ask requests tasks. It returns a channel that is closed once the ticket holds them.
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

// fitLocked gives tasks to the waiting tickets in their order, so that small requests cannot delay a large one
// forever. There are three exceptions. A ticket that waits only for runs of its own caller does not delay tickets of
// other callers: the caller has used its share, or the ticket would fit if these runs had ended. While the first
// other ticket waits (large), a caller without a run may still get one with the default limits; see passesLocked. If a
// ticket of a caller does not fit, later tickets of that caller wait behind it.
func (q *Queue) fitLocked() {
	behind, large := map[holder]bool{}, (*Ticket)(nil) // large: the first ticket that waits for tasks of other callers
	for i := 0; i < len(q.short); {
		t := q.short[i]
		for _, h := range q.fullLocked(t) {
			behind[h] = true
		}
		switch {
		case slices.ContainsFunc(holders(t.who), func(h holder) bool { return behind[h] }), large != nil && !q.passesLocked(t, large):
			i++
		case q.tasks+t.tasks > q.cfg.MaxTasks:
			behind[lineOf(t.who)] = true
			if large == nil && !q.waitsForOwnLocked(t) {
				large = t
			}
			i++
		default:
			q.short = slices.Delete(q.short, i, i+1)
			q.tasks += t.tasks
			if large != nil {
				t.passed = t.tasks
				q.passing += t.passed
			}
			q.addLocked(t.who, holding{runs: t.tasks})
			close(t.fits)
		}
	}
}

// Place returns the position of this request in its line, from 1. The line has the waiting requests of its
// namespace or caller, or, after admission, all requests that wait for tasks. Place returns 0 once the
// request waits no longer, and for a nil ticket.
func (t *Ticket) Place() int {
	if t == nil {
		return 0
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if i := slices.Index(t.q.short, t); i >= 0 {
		return i + 1
	}
	return slices.Index(t.q.waiting[lineOf(t.who)], t) + 1
}

// Leave removes the ticket from the queue, or ends an admission that was not used. The request does not
// count as processed. After Release, and on a nil ticket, Leave does nothing.
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

// Release ends an admission and admits the next request. It may be called only after Wait
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
	q.addLocked(t.who, holding{places: -1})
	q.admitLocked()
}

// admitLocked admits waiting requests while there is room for any of them.
func (q *Queue) admitLocked() {
	for {
		n := -1
		i := slices.IndexFunc(q.turn, func(h holder) bool {
			n = q.nextLocked(q.waiting[h])
			return n >= 0
		})
		if i < 0 {
			return
		}
		h := q.turn[i]
		line := q.waiting[h]
		t := line[n]
		q.turn = slices.Delete(q.turn, i, i+1)
		if len(line) > 1 {
			q.waiting[h] = slices.Delete(line, n, n+1)
			q.turn = append(q.turn, h) // the next turn of this line is after those of all others
		} else {
			delete(q.waiting, h)
		}
		q.admitOneLocked(t)
	}
}

// nextLocked returns the index of the first request in a line for which there is a place, or -1. An earlier
// request in the line may have to wait: a line can have requests of several namespaces, and a place may be kept
// from some of them.
func (q *Queue) nextLocked(line []*Ticket) int {
	if q.active >= q.cfg.MaxConcurrent {
		return -1
	}
	full := map[sandboxmcp.Namespace]bool{}
	return slices.IndexFunc(line, func(t *Ticket) bool {
		if ns := t.who.Namespace; !full[ns] {
			full[ns] = !q.roomLocked(t.who)
			return !full[ns]
		}
		return false
	})
}

// giveUpTasksLocked returns the tasks of a ticket, or cancels its request for tasks.
func (q *Queue) giveUpTasksLocked(t *Ticket) {
	if t.fits == nil {
		return
	}
	if i := slices.Index(q.short, t); i >= 0 {
		q.short = slices.Delete(q.short, i, i+1)
	} else {
		q.tasks -= t.tasks
		q.addLocked(t.who, holding{runs: -t.tasks})
	}
	q.passing -= t.passed
	t.fits, t.tasks, t.passed = nil, 0, 0
	q.fitLocked()
}

func (q *Queue) leaveLocked(t *Ticket) {
	t.done = true
	h := lineOf(t.who)
	line := slices.DeleteFunc(q.waiting[h], func(x *Ticket) bool { return x == t })
	if len(line) > 0 {
		q.waiting[h] = line
		return
	}
	delete(q.waiting, h)
	q.turn = slices.DeleteFunc(q.turn, func(other holder) bool { return other == h })
}

// Share holds the tasks of a session's sandbox. A nil Share holds none. Its methods may be
// called concurrently.
type Share struct {
	q     *Queue
	who   sandboxmcp.Caller
	tasks int
	held  bool // Take has moved the tasks from a ticket; guarded by q.mu
	over  bool // Release was called; guarded by q.mu
}

// Reserve reserves a share for a new session of a caller. It does not wait. It fails with max_sessions if all
// sessions would hold more than half of all tasks, or if those of the caller or its namespace would hold the tasks
// that are left to others. The session's first ticket waits for the tasks, and Take moves them to the share.
func (q *Queue) Reserve(who sandboxmcp.Caller, tasks int) (*Share, error) {
	if q.cfg.MaxTasks <= 0 {
		return &Share{q: q}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seeLocked(who.Namespace)
	if most := q.mostReservedLocked(who, tasks); q.kept+tasks > most {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeMaxSessions, "live sessions may have %d tasks, without those that are kept for other namespaces; with the %d of this one they would have %d", most, tasks, q.kept+tasks).
			WithHint("terminate a session that is no longer needed, or set a lower max_processes").With("limit_tasks", most)
	}
	q.kept += tasks
	q.addLocked(who, holding{sessions: tasks})
	return &Share{q: q, who: who, tasks: tasks}, nil
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
	s.q.addLocked(t.who, holding{runs: -t.tasks, taken: s.tasks})
	s.q.passing -= t.passed
	s.held, t.fits, t.tasks, t.passed = true, nil, 0, 0
	s.q.fitLocked()
}

// Release returns the tasks of the share. Further calls do nothing.
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
	less := holding{sessions: -s.tasks}
	if s.held {
		s.q.tasks -= s.tasks
		less.taken = -s.tasks
	}
	s.q.addLocked(s.who, less)
	s.q.fitLocked()
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
