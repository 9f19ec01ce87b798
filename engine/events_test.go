package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// types are those of the kept events of a namespace.
func types(e *engine.Engine, ns sandboxmcp.Namespace) []sandboxmcp.EventType {
	all := []sandboxmcp.EventType{}
	for _, ev := range recent(e, of(ns)) {
		all = append(all, ev.Type)
	}
	return all
}

// TestEventsOfRuns: each way in which a run can end publishes one event.
func TestEventsOfRuns(t *testing.T) {
	const started, failed = sandboxmcp.EventExecutionStarted, sandboxmcp.EventExecutionFailed
	little := sandboxmcp.Limits{MaxOutputBytes: 10}
	for name, c := range map[string]struct {
		fake   *fake
		limits sandboxmcp.Limits
		want   []sandboxmcp.EventType
		status sandboxmcp.Status
	}{
		"Completed":   {fake: &fake{}, want: []sandboxmcp.EventType{started, "execution.completed"}, status: "completed"},
		"Failed":      {fake: &fake{program: end(backend.Exit{Code: 2})}, want: []sandboxmcp.EventType{started, failed}, status: "failed"},
		"Signalled":   {fake: &fake{program: end(backend.Exit{Signal: 11})}, want: []sandboxmcp.EventType{started, failed}, status: "signalled"},
		"Timeout":     {fake: &fake{program: (*fakeRun).Hang}, limits: sandboxmcp.Limits{TimeoutSeconds: 0.05}, want: []sandboxmcp.EventType{started, "execution.timeout"}, status: "timed_out"},
		"OutOfMemory": {fake: &fake{program: end(backend.Exit{Signal: 9}), usage: backend.Usage{OOMKills: 1}}, want: []sandboxmcp.EventType{started, "resource.exceeded", failed}, status: "out_of_memory"},
		"OutputLimit": {fake: &fake{program: flood((*fakeRun).Hang)}, limits: little, want: []sandboxmcp.EventType{started, "resource.exceeded", failed}, status: "output_limit"},
		"Files":       {fake: &fake{files: map[string]string{"a": "x", "b": "y"}}, want: []sandboxmcp.EventType{started, "artifact.signed", "execution.completed"}, status: "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.fake
			e := open(t, f)
			heard, stop := e.Subscribe(of("default"))
			defer stop()
			other, stopOther := e.Subscribe(of("elsewhere"))
			defer stopOther()
			req := shell("secret code")
			req.Limits = c.limits
			res := execute(t, e, req)
			if got := types(e, "default"); !cmp.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for _, want := range c.want {
				ev := <-heard
				if ev.Type != want || ev.Namespace != "default" || ev.Data["request_id"] != res.RequestID || ev.Message == "" || ev.Timestamp.IsZero() || ev.Dropped != 0 {
					t.Errorf("got %+v, want a whole %s", ev, want)
				}
				if text, err := json.Marshal(ev); err != nil || strings.Contains(string(text), "secret code") {
					t.Errorf("event: got %s, %v; want JSON without code", text, err)
				}
			}
			last := recent(e, everyone())[len(c.want)-1]
			if last.Data["status"] != c.status || last.Data["exit_code"] != res.ExitCode {
				t.Errorf("the last event: got data %v, want status and exit code of the result", last.Data)
			}
			if len(other) > 0 {
				t.Error("another namespace: got events, want none")
			}
		})
	}
}

// TestEventOfAFailureOfOurs: a run whose intent is on record and that the server could not
// carry out publishes an event with its code. A run that was refused before publishes none.
func TestEventOfAFailureOfOurs(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.onStart = func(backend.Process) error { return errors.New("no") }
	e := open(t, f)
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeExecutionFailed {
		t.Fatal(err)
	}
	if got := types(e, ""); !cmp.Equal(got, []sandboxmcp.EventType{"execution.started", "execution.failed"}) {
		t.Errorf("got %v", got)
	}
	if got := recent(e, everyone())[1].Data["error"]; got != sandboxmcp.CodeExecutionFailed {
		t.Errorf("error: got %v", got)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell(" ")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Fatal(err)
	}
	if n := len(recent(e, everyone())); n != 2 {
		t.Errorf("events after a refusal: got %v, want 2 and none for the refusal", types(e, ""))
	}
}

func TestEventsOfSessions(t *testing.T) {
	t.Parallel()
	e := open(t, &fake{})
	heard, stop := e.Subscribe(everyone())
	defer stop()
	made := func(spec sandboxmcp.SessionSpec) sandboxmcp.SessionID {
		spec.Language, spec.Fresh = sandboxmcp.Shell, true
		s, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, spec)
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	hear := func(want sandboxmcp.EventType, id sandboxmcp.SessionID, reason string) {
		t.Helper()
		select {
		case ev := <-heard:
			got, _ := ev.Data["reason"].(string)
			if ev.Type != want || ev.Data["session_id"] != id || !strings.HasPrefix(got, reason) {
				t.Errorf("got %+v, want %s of %s, %s", ev, want, id, reason)
			}
		case <-timeUp(t, time.Minute):
			t.Errorf("%s never came", want)
		}
	}
	id := made(sandboxmcp.SessionSpec{})
	hear("session.created", id, "")
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Actor: "tester"}, id); err != nil {
		t.Fatal(err)
	}
	hear("session.killed", id, "terminated")
	id = made(sandboxmcp.SessionSpec{TTL: time.Millisecond})
	hear("session.created", id, "")
	hear("session.killed", id, "its time was up")
	id = made(sandboxmcp.SessionSpec{})
	hear("session.created", id, "")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	hear("session.killed", id, "server stop")
	if _, open := <-heard; open {
		t.Error("the channel of a closed engine: got it open, want it closed")
	}
}

// TestBackpressure: a queue that is full, or half full, publishes an event, but not with every
// request.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	g := newGate()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	e := open(t, &g.fake, one, func(c *engine.Config) { c.MaxQueued, c.Now = 4, clock })
	of := func(ns sandboxmcp.Namespace) (all []sandboxmcp.Event) {
		return slices.DeleteFunc(recent(e, of(ns)), func(ev sandboxmcp.Event) bool { return ev.Type != sandboxmcp.EventQueueBackpressure })
	}
	start(t, e, "a", "runs")
	start(t, e, "a", "waits")
	if all := of("a"); len(all) != 0 {
		t.Errorf("one waits: got %+v", all)
	}
	start(t, e, "a", "waits")
	if all := of("a"); len(all) != 1 || all[0].Data["refused"] != false || all[0].Data["queued"] != 2 || all[0].Data["active"] != 1 {
		t.Errorf("two of four wait: got %+v", all)
	}
	start(t, e, "a", "waits")
	start(t, e, "a", "waits")
	refuse := func() {
		if _, err := e.Execute(t.Context(), sandboxmcp.Caller{Namespace: "a"}, sandboxmcp.Request{Code: "x"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
			t.Fatal(err)
		}
	}
	refuse()
	if all := of("a"); len(all) != 1 {
		t.Errorf("in the same second: got %+v", all)
	}
	now = now.Add(time.Second)
	refuse()
	refuse()
	if all := of("a"); len(all) != 2 || all[1].Data["refused"] != true {
		t.Errorf("a second later: got %+v", all)
	}
}

// BenchmarkRunWithEvents is a run through the engine over a backend that does
// nothing, with no subscriber and with sixteen that do not read.
func BenchmarkRunWithEvents(b *testing.B) {
	for name, n := range map[string]int{"nobody": 0, "sixteen": 16} {
		b.Run(name, func(b *testing.B) {
			e, err := engine.New(b.Context(), engine.Config{StateDir: b.TempDir() + "/state", Backends: []backend.Backend{&fake{}}})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			for range n {
				_, stop := e.Subscribe(everyone())
				defer stop()
			}
			for b.Loop() {
				if _, err := e.Execute(b.Context(), sandboxmcp.Caller{}, shell("x")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Events name secrets and destinations, and hold no secret value.
func TestEventsOfTheGuard(t *testing.T) {
	e := open(t, connected(t), func(c *engine.Config) { c.Network = true })
	heard, stop := e.Subscribe(of("default"))
	defer stop()
	const value = "kit0123456789ab"
	addSecret(t, e, "TOKEN", value)
	var names []string
	for n := range 40 {
		names = append(names, fmt.Sprintf("n%d.site.test", n))
	}
	execute(t, e, shell(strings.Join(append([]string{value + ".site.test", "n1.site.test"}, names...), "\n")))
	if _, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.site.test"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteSecret(t.Context(), sandboxmcp.Caller{}, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	count, refused := map[sandboxmcp.EventType]int{}, 0
	for range 3 + 2 + 32 + 2 {
		v := <-heard
		count[v.Type]++
		if strings.Contains(fmt.Sprint(v), value) {
			t.Errorf("event: got the secret in %v, want it masked", v)
		}
		if n, ok := v.Data["destinations"].(int); ok && v.Type == sandboxmcp.EventEgressDenied {
			refused += n
		} else if v.Type == sandboxmcp.EventEgressDenied {
			refused++
		}
	}
	want := map[sandboxmcp.EventType]int{
		sandboxmcp.EventVaultAccessed: 3, sandboxmcp.EventExecutionStarted: 1, sandboxmcp.EventExecutionCompleted: 1, sandboxmcp.EventEgressDenied: 32,
		sandboxmcp.EventEgressRequested: 1, sandboxmcp.EventEgressApproved: 1,
	}
	if d := cmp.Diff(want, count); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if refused != 41 {
		t.Errorf("refused destinations in events: got %d, want 41", refused)
	}
}
