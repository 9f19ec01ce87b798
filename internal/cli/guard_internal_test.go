package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// fakeGuard is the part of a fake engine that has limits and events.
type fakeGuard struct {
	guard   sync.Mutex // guards what follows
	changes []sandboxmcp.LimitsChange
	askers  []sandboxmcp.Caller // for each of changes
	kept    sandboxmcp.Limits
	refuses error
	kinds   []sandboxmcp.Event
	heard   []chan sandboxmcp.Event
}

func (f *fakeGuard) SetLimits(_ context.Context, who sandboxmcp.Caller, c sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	f.guard.Lock()
	defer f.guard.Unlock()
	f.changes, f.askers = append(f.changes, c), append(f.askers, who)
	was := f.kept.Over(sandboxmcp.DefaultLimits())
	if c.Reset {
		f.kept = sandboxmcp.Limits{}
	}
	f.kept = c.Limits.Over(f.kept)
	return sandboxmcp.LimitsChanged{Previous: was, Current: f.kept.Over(sandboxmcp.DefaultLimits()), Clamped: []string{}}, f.refuses
}

func (f *fakeGuard) Events(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Event, error) {
	f.guard.Lock()
	defer f.guard.Unlock()
	var all []sandboxmcp.Event
	for _, e := range f.kinds {
		if c.Namespace == sandboxmcp.EveryNamespace || c.Namespace == e.Namespace {
			all = append(all, e)
		}
	}
	return all, nil
}

func (f *fakeGuard) Follow(ctx context.Context, who sandboxmcp.Caller, recent bool) (<-chan sandboxmcp.Event, error) {
	if !recent {
		panic("it has to ask for what is kept as well")
	}
	c := make(chan sandboxmcp.Event, 64)
	kept, err := f.Events(ctx, who)
	for _, e := range kept {
		c <- e
	}
	f.guard.Lock()
	defer f.guard.Unlock()
	f.heard = append(f.heard, c)
	context.AfterFunc(ctx, func() {
		f.guard.Lock()
		defer f.guard.Unlock()
		f.heard = slices.DeleteFunc(f.heard, func(h chan sandboxmcp.Event) bool { return h == c })
		close(c)
	})
	return c, err
}

// happen is something that happens in a fake engine.
func (f *fakeGuard) happen(e sandboxmcp.Event) {
	f.guard.Lock()
	defer f.guard.Unlock()
	f.kinds = append(f.kinds, e)
	for _, c := range f.heard {
		c <- e
	}
}

func (f *fakeGuard) followed() bool {
	f.guard.Lock()
	defer f.guard.Unlock()
	return len(f.heard) > 0
}

func occurrence(mark string, n int, at time.Time) sandboxmcp.Event {
	return sandboxmcp.Event{
		ID: mark + "-" + strconv.Itoa(n), Type: sandboxmcp.EventExecutionStarted, Namespace: "default", Message: "python run started",
		Data: map[string]any{"request_id": "r" + strconv.Itoa(n)}, Timestamp: at,
	}
}

// buffer is what a command writes, read while it does.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestLimitsCommand(t *testing.T) {
	state := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + state}
	f, server := &fake{}, &fake{}
	server.listen(t, state, false)
	out := f.cli(t.Context(), t, env, "limits", "--ram", "256", "--cpu", "0.5", "--timeout", "5", "--processes", "3", "--output", "100")
	want := sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 0.5, TimeoutSeconds: 5, MaxProcesses: 3, MaxOutputBytes: 100}
	doc := parsed[map[string]json.RawMessage](t, out.stdout)
	if out.status != 0 || out.stderr != "" || len(doc) != 3 {
		t.Errorf("got %+v, want status 0 and three fields", out)
	}
	if got := parsed[sandboxmcp.LimitsChanged](t, out.stdout); got.Previous != sandboxmcp.DefaultLimits() || got.Current != want {
		t.Errorf("got %+v, want the defaults before and %+v now", got, want)
	}
	asked := sandboxmcp.LimitsChange{Limits: want, Strict: true}
	for name, e := range map[string]*fake{"the state directory": f, "the running server": server} {
		if d := cmp.Diff([]sandboxmcp.LimitsChange{asked}, e.changes); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	out = f.cli(t.Context(), t, env, "limits", "--reset", "--namespace", "team")
	if d := cmp.Diff(sandboxmcp.LimitsChange{Reset: true, Strict: true}, f.changes[1]); d != "" || out.status != 0 || f.askers[1] != (sandboxmcp.Caller{Namespace: "team", Actor: "cli"}) {
		t.Errorf("reset: %+v (-want +got):\n%s", out, d)
	}
	// A server whose settings say otherwise is named, and so is one that refuses.
	server.kept = sandboxmcp.Limits{MaxRAMMB: 99}
	if out = f.cli(t.Context(), t, env, "limits"); out.status != 0 || !strings.Contains(out.stderr, "server "+server.id+" applies other limits") || !strings.Contains(out.stderr, "99 MiB") {
		t.Errorf("another's settings: got %+v, want them told", out)
	}
	server.refuses = sandboxmcp.Errorf(sandboxmcp.CodeLimitExceedsCap, "max_ram_mb is above its ceiling")
	if out = f.cli(t.Context(), t, env, "limits", "--ram", "300"); out.status != 0 || !strings.Contains(out.stderr, "server "+server.id+": limit_exceeds_cap") {
		t.Errorf("another's ceiling: got %+v, want limit_exceeds_cap told", out)
	}
	// With a record in memory there is only the server.
	f.changes = nil
	memory := []string{env[0], "SANDBOXMCP_AUDIT=memory"}
	if out = f.cli(t.Context(), t, memory, "limits", "--ram", "300"); out.status != 2 || !strings.Contains(out.stderr, "limit_exceeds_cap") {
		t.Errorf("in memory, refused: got %+v, want 2 and limit_exceeds_cap", out)
	}
	server.refuses = nil
	if out = f.cli(t.Context(), t, memory, "limits", "--ram", "300"); out.status != 0 || parsed[sandboxmcp.LimitsChanged](t, out.stdout).Current.MaxRAMMB != 300 || len(f.changes) > 0 {
		t.Errorf("in memory: got %+v and the changes %+v, want 300 and none here", out, f.changes)
	}
	nobody := []string{"SANDBOXMCP_STATE_DIR=" + t.TempDir(), "SANDBOXMCP_AUDIT=memory"}
	if out = f.cli(t.Context(), t, nobody, "limits", "--ram", "300"); out.status != 9 || !strings.Contains(out.stderr, "backend_unavailable: the limits could not be stored") {
		t.Errorf("in memory without a server: got %+v, want 9 and backend_unavailable", out)
	}
}

func TestLimitsCommandRefuses(t *testing.T) {
	f := &fake{}
	for _, bad := range [][]string{
		{"--ram", "0"},
		{"--ram", "-5"},
		{"--ram", "lots"},
		{"--ram", "1.5"},
		{"--cpu", "nan"},
		{"--cpu", "inf"},
		{"--cpu", "-1"},
		{"--timeout", "0"},
		{"--processes", "0"},
		{"--output", "-1"},
		{"--ram"},
		{"more"},
		{"--reset", "--ram", "5"},
		{"--namespace", "a b"},
	} {
		if out := f.cli(t.Context(), t, nil, append([]string{"limits"}, bad...)...); out.status != 2 || out.stdout != "" || len(out.stderr) < 20 {
			t.Errorf("%v: got %+v, want 2 and a reason alone", bad, out)
		}
	}
	if len(f.changes) > 0 {
		t.Errorf("got changes %+v, want none", f.changes)
	}
}

func TestEventsCommand(t *testing.T) {
	state := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + state}
	one, two, me := &fake{}, &fake{}, &fake{}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one.happen(occurrence("a", 1, at))
	one.happen(occurrence("a", 2, at.Add(2*time.Second)))
	odd := occurrence("b", 1, at.Add(time.Second))
	odd.Namespace, odd.Message, odd.Dropped = "team", "a\x1b[31m\nline", 3
	two.happen(odd)
	if out := me.cli(t.Context(), t, env, "events", "--json"); out.status != 0 || len(parsed[map[string][]sandboxmcp.Event](t, out.stdout)["events"]) != 0 {
		t.Errorf("without a server: got %+v, want no events", out)
	}
	one.listen(t, state, false)
	two.listen(t, state, false)
	out := me.cli(t.Context(), t, env, "events", "--json")
	all := parsed[map[string][]sandboxmcp.Event](t, out.stdout)["events"]
	if out.status != 0 || len(all) != 3 || all[0].ID != "a-1" || all[1].ID != "b-1" || all[2].ID != "a-2" {
		t.Errorf("got %+v, want a-1, b-1 and a-2", out)
	}
	out = me.cli(t.Context(), t, env, "events")
	if want := "2026-01-01T00:00:00Z  execution.started  default    python run started, request r1\n"; !strings.Contains(out.stdout, want) {
		t.Errorf("got %q, want a line %q", out.stdout, want)
	}
	if strings.ContainsAny(out.stdout, "\x1b") || strings.Count(out.stdout, "\n") != 4 || !strings.Contains(out.stdout, "(3 before it lost)") {
		t.Errorf("got %q, want four lines without escapes, and what was lost", out.stdout)
	}
	out = me.cli(t.Context(), t, env, "events", "--namespace", "team", "--json")
	if all = parsed[map[string][]sandboxmcp.Event](t, out.stdout)["events"]; len(all) != 1 || all[0].Namespace != "team" {
		t.Errorf("of a namespace: got %+v, want that of team alone", out)
	}
	if out = me.cli(t.Context(), t, env, "events", "--namespace", "a b"); out.status != 2 {
		t.Errorf("bad namespace: got %+v, want 2", out)
	}
}

// Servers that run are followed from now on, and those that start later from their beginning.
// No event is shown twice, also if a server cannot be reached for a while. The command ends
// when its context ends.
func TestFollowEvents(t *testing.T) {
	state := t.TempDir()
	one, two, me := &fake{}, &fake{}, &fake{}
	one.happen(occurrence("a", 1, time.Now().Add(-time.Minute)))
	one.listen(t, state, false)
	var out, errs buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	a := me.call([]string{"HOME=" + t.TempDir(), "SANDBOXMCP_STATE_DIR=" + state}, &out, &errs)
	go func() { ended <- a.main(ctx, []string{"sandboxmcp", "events", "--follow", "--json"}) }()
	testkit.Until(t, "it follows", one.followed)
	later := time.Now().Add(time.Minute)
	one.happen(occurrence("a", 2, later))
	two.happen(occurrence("b", 1, later))
	two.listen(t, state, false)
	testkit.Until(t, "the second is followed", two.followed)
	one.listen(t, state, true) // a second door of the same engine
	one.happen(occurrence("a", 3, later))
	two.happen(occurrence("b", 2, later))
	ids := func() map[string]int {
		got := map[string]int{}
		for line := range strings.Lines(out.String()) {
			var e sandboxmcp.Event
			if json.Unmarshal([]byte(line), &e) == nil {
				got[e.ID]++
			}
		}
		return got
	}
	want := map[string]int{"a-2": 1, "a-3": 1, "b-1": 1, "b-2": 1}
	testkit.Until(t, "all are shown", func() bool { return len(ids()) >= len(want) })
	testkit.Until(t, "the second door is followed", func() bool {
		one.guard.Lock()
		defer one.guard.Unlock()
		return len(one.heard) == 2
	})
	one.happen(occurrence("a", 4, later))
	want["a-4"] = 1
	testkit.Until(t, "the last is shown", func() bool { return ids()["a-4"] > 0 })
	cancel()
	if status := <-ended; status != 0 {
		t.Errorf("status: got %d, want 0", status)
	}
	if d := cmp.Diff(want, ids()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if errs.String() != "" {
		t.Errorf("stderr: got %q, want nothing", errs.String())
	}
}

// gone is an output whose reader has left.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestFollowEndsWithItsReader(t *testing.T) {
	state := t.TempDir()
	server, me := &fake{}, &fake{}
	server.listen(t, state, false)
	ended := make(chan int, 1)
	var errs buffer
	a := me.call([]string{"HOME=" + t.TempDir(), "SANDBOXMCP_STATE_DIR=" + state}, gone{}, &errs)
	go func() { ended <- a.main(t.Context(), []string{"sandboxmcp", "events", "--follow"}) }()
	testkit.Until(t, "it follows", server.followed)
	server.happen(occurrence("a", 1, time.Now().Add(time.Minute)))
	select {
	case status := <-ended:
		if status != exitBrokenPipe {
			t.Errorf("status: got %d, want %d", status, exitBrokenPipe)
		}
	case <-time.NewTimer(20 * time.Second).C:
		t.Fatal("got a command that goes on, want its end")
	}
}
