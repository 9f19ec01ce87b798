package engine

import (
	"context"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxJobs is the number of background runs that are listed. A run that has ended makes room for
// a new one. Those that wait or run are bounded by the queue, and are always listed.
const maxJobs = 1024

// job is a background run in the list. The engine's mu guards it.
type job struct {
	info  sandboxmcp.Job // Status is set when the run ends
	owner string         // see ownerOf
	x     *execution     // nil: it has ended
}

// addJobLocked lists a background run. If there are too many, it drops the oldest ended run of the
// owner with most ended runs. The caller holds e.mu.
func (e *Engine) addJobLocked(x *execution) {
	for len(e.jobs) >= maxJobs {
		i := oldestOfMost(e.jobs, func(j *job) (string, bool) { return j.owner, j.x == nil })
		if i < 0 {
			break
		}
		e.jobs = slices.Delete(e.jobs, i, i+1)
	}
	e.jobs = append(e.jobs, &job{x: x, owner: ownerOf(x.who), info: sandboxmcp.Job{
		ID: x.req.ID, Language: x.req.Language, SessionID: x.req.SessionID, Namespace: x.who.Namespace, SubmittedAt: x.received.UTC(),
	}})
}

// ownerOf returns the owner for which the stored results and list entries of a caller count: its namespace, or the
// caller itself if it has several namespaces.
func ownerOf(c sandboxmcp.Caller) string {
	if c.Holder != "" {
		return "\x00" + c.Holder // differs from every namespace
	}
	return string(c.Namespace)
}

// oldestOfMost returns the index of the first element that belongs to the owner with most elements. It returns -1 if no
// element counts. So a caller that adds many elements loses its own before those of others.
func oldestOfMost[T any](all []T, of func(T) (owner string, counts bool)) int {
	each, most := map[string]int{}, 0
	for _, one := range all {
		if owner, ok := of(one); ok {
			each[owner]++
			most = max(most, each[owner])
		}
	}
	return slices.IndexFunc(all, func(one T) bool {
		owner, ok := of(one)
		return ok && each[owner] == most
	})
}

// endJobLocked notes how a background run has ended. The caller holds e.mu.
func (e *Engine) endJobLocked(x *execution) {
	i := slices.IndexFunc(e.jobs, func(j *job) bool { return j.x == x })
	if i < 0 {
		return
	}
	j, now := e.jobs[i], e.cfg.Now().UTC()
	j.x, j.info.EndedAt, j.info.Status = nil, &now, sandboxmcp.JobStatus(x.res.Status)
	if x.err != nil {
		j.info.Status = sandboxmcp.JobError
	}
}

// Jobs lists the background runs of a namespace, newest first: those that wait or run, and the
// latest that have ended. It accepts EveryNamespace.
func (e *Engine) Jobs(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Job, error) {
	ns := e.listed(c)
	type listed struct {
		sandboxmcp.Job
		place func() int
	}
	var found []listed
	e.mu.Lock()
	for _, j := range slices.Backward(e.jobs) {
		if ns != "" && j.info.Namespace != ns {
			continue
		}
		l := listed{Job: j.info}
		if j.x != nil {
			l.place = j.x.ticket.Place
		}
		found = append(found, l)
	}
	e.mu.Unlock()
	out := make([]sandboxmcp.Job, 0, len(found))
	for _, l := range found {
		if l.place != nil {
			l.Status = sandboxmcp.JobRunning
			if l.place() > 0 {
				l.Status = sandboxmcp.JobQueued
			}
		}
		out = append(out, l.Job)
	}
	return out, nil
}
