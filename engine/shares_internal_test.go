package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

func backgroundOf(ns sandboxmcp.Namespace, n int) *execution {
	return &execution{
		order: order{who: sandboxmcp.Caller{Namespace: ns}, background: true, req: sandboxmcp.Request{ID: sandboxmcp.RequestID(fmt.Sprintf("%s-%d", ns, n))}},
		err:   errors.New("denied"),
	}
}

// TestFailedRunsOfOthersAreKept: the failures of one namespace do not push out the only one of another,
// whose caller would be told that there was no such run.
func TestFailedRunsOfOthersAreKept(t *testing.T) {
	e := &Engine{cfg: Config{Now: time.Now}}
	fail := func(x *execution) {
		e.addJobLocked(x)
		e.endJobLocked(x)
		e.keepErrorLocked(x)
	}
	fail(backgroundOf("other", 0))
	const most = 2 * maxJobs
	for n := range most { // each run is in another namespace, and all are of one caller
		x := backgroundOf(sandboxmcp.Namespace(fmt.Sprintf("many-%d", n)), n)
		x.who.Holder = "key 1"
		fail(x)
	}
	for n := range most {
		fail(backgroundOf("greedy", n))
	}
	if x := e.find("other", "other-0"); x == nil || x.err == nil {
		t.Errorf("a look-up finds %+v, want the error of the run", x)
	}
	if e.find("greedy", backgroundOf("greedy", most-1).req.ID) == nil || len(e.ended) > maxEnded {
		t.Errorf("%d failed runs are kept, want at most %d with the last one", len(e.ended), maxEnded)
	}
	list, err := e.Jobs(t.Context(), sandboxmcp.Caller{Namespace: "other"})
	if err != nil || len(list) != 1 || len(e.jobs) != maxJobs {
		t.Errorf("the other namespace has %d of %d listed runs, %v; want 1 of %d", len(list), len(e.jobs), err, maxJobs)
	}
}

// TestInputOfOneNamespaceLeavesRoom: background runs that wait for packages hold their inputs without a
// place in the queue.
func TestInputOfOneNamespaceLeavesRoom(t *testing.T) {
	e := &Engine{live: map[sandboxmcp.RequestID]*execution{}}
	input := make([]byte, 16<<20)
	begin := func(ns sandboxmcp.Namespace, holder string, n int) error {
		x := backgroundOf(ns, n)
		x.who.Holder, x.req.Stdin = holder, input
		err := e.roomForInputLocked(x)
		if err == nil {
			e.live[x.req.ID] = x
		}
		return err
	}
	var refused error
	for n := range 64 {
		if err := begin("greedy", "key 1", n); err != nil {
			refused = err
		}
	}
	if err := begin("greedy-2", "key 1", 0); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("in another namespace of that caller: got %v, want queue_full", err)
	}
	if sandboxmcp.CodeOf(refused) != sandboxmcp.CodeQueueFull {
		t.Errorf("got %v after %d runs, want queue_full", refused, len(e.live))
	}
	if err := begin("other", "", 0); err != nil {
		t.Errorf("the first run of another namespace: %v", err)
	}
}
