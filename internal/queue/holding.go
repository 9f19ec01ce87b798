package queue

import (
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
)

// usualTasks is the number of tasks of a sandbox with the default limits.
const usualTasks = 10 * sandboxmcp.TasksPerProcess

// holder is a namespace, or a caller who holds several. One of the fields is set.
type holder struct {
	ns     sandboxmcp.Namespace
	caller string
}

// holding is what a holder has of a queue.
type holding struct {
	places   int // of the MaxConcurrent places
	runs     int // tasks of runs, and of the first run of a session until its share has them
	sessions int // tasks that are reserved for sessions
	taken    int // part of sessions that Take has moved from runs
}

// tasks returns all tasks that a holder has. A session that is being made counts once, with its first run.
func (h holding) tasks() int { return h.runs + h.taken }

// holders returns the holders that a request counts for: its namespace, and also its caller if that has several
// namespaces. So a caller with several namespaces gets no more than one with a single namespace.
func holders(who sandboxmcp.Caller) []holder {
	if who.Holder == "" {
		return []holder{{ns: who.Namespace}}
	}
	return []holder{{ns: who.Namespace}, {caller: who.Holder}}
}

// lineOf returns the holder in whose line the requests of a caller wait. A caller with several namespaces has one
// line for all of them.
func lineOf(who sandboxmcp.Caller) holder { return holders(who)[len(holders(who))-1] }

// addLocked changes what the holders of a request have.
func (q *Queue) addLocked(who sandboxmcp.Caller, more holding) {
	for _, h := range holders(who) {
		has := q.has[h]
		has.places += more.places
		has.runs += more.runs
		has.sessions += more.sessions
		has.taken += more.taken
		if has == (holding{}) {
			delete(q.has, h)
		} else {
			q.has[h] = has
		}
	}
}

// hasLocked returns the largest numbers of places, of tasks of runs, and of tasks of sessions that one of a request's
// holders has.
func (q *Queue) hasLocked(who sandboxmcp.Caller) (most holding) {
	for _, h := range holders(who) {
		has := q.has[h]
		most.places = max(most.places, has.places)
		most.runs = max(most.runs, has.runs)
		most.sessions = max(most.sessions, has.sessions)
	}
	return most
}

// othersLocked reports whether ok is true for a known namespace other than the caller's. It leaves out namespaces that
// only this caller may use.
func (q *Queue) othersLocked(who sandboxmcp.Caller, ok func(sandboxmcp.Namespace) bool) bool {
	is := func(other sandboxmcp.Namespace) bool {
		return other != who.Namespace && (who.Holder == "" || q.cfg.Holders[other] != who.Holder) && ok(other)
	}
	return slices.ContainsFunc(q.cfg.Known, is) || slices.ContainsFunc(q.seen, is)
}

// leftLocked returns how many of a number of tasks are kept for other namespaces than that of a request: a quarter,
// but at least enough for a sandbox with the default limits, and at most half. If there is no other namespace, it returns 0.
func (q *Queue) leftLocked(who sandboxmcp.Caller, tasks int) int {
	if !q.othersLocked(who, func(sandboxmcp.Namespace) bool { return true }) {
		return 0
	}
	return max(tasks/4, min(usualTasks, tasks/2))
}

// fullLocked returns the holders of a ticket that would exceed their share with its tasks. A holder without a run is
// never among them: otherwise its run would have to wait until its own sessions end.
func (q *Queue) fullLocked(t *Ticket) []holder {
	most := q.cfg.MaxTasks - q.leftLocked(t.who, q.cfg.MaxTasks)
	return slices.DeleteFunc(holders(t.who), func(h holder) bool {
		has := q.has[h]
		return has.runs == 0 || has.tasks()+t.tasks <= most
	})
}

// waitsForOwnLocked reports whether a ticket would fit if its caller had no run.
func (q *Queue) waitsForOwnLocked(t *Ticket) bool {
	return q.tasks-q.hasLocked(t.who).runs+t.tasks <= q.cfg.MaxTasks
}

// passesLocked reports whether a ticket may be admitted before large, a ticket of another caller that came earlier. It may
// if its sandbox has at most the default limits and its caller has no run. In addition, large must have to wait even without
// the runs that have passed it, or both must fit. Without this condition, some callers could keep large waiting forever,
// each with one short run after another.
func (q *Queue) passesLocked(t, large *Ticket) bool {
	others := q.tasks - q.passing + large.tasks // tasks in use if large were admitted and no run had passed it
	return t.tasks <= usualTasks && q.hasLocked(t.who).runs == 0 &&
		(others > q.cfg.MaxTasks || others+q.passing+t.tasks <= q.cfg.MaxTasks)
}

// mostReservedLocked returns how many tasks all sessions may have together, including a new one of the caller: half of
// all tasks, less what this caller has to leave to other namespaces. A caller without a session may use what is left to
// others for one session with the default limits.
func (q *Queue) mostReservedLocked(who sandboxmcp.Caller, tasks int) int {
	most := q.cfg.MaxTasks - q.cfg.MostTasks()
	mine := q.hasLocked(who).sessions
	if mine == 0 && tasks <= usualTasks {
		return most
	}
	return min(most, q.kept-mine+most-q.leftLocked(who, most))
}
