package event_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
)

// at is when everything happens.
var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func newBus() *event.Bus { return event.New(func() time.Time { return at }) }

// tell emits n events of a namespace, numbered from 0.
func tell(b *event.Bus, ns sandboxmcp.Namespace, n int) {
	for i := range n {
		b.Emit(sandboxmcp.Event{Type: sandboxmcp.EventExecutionStarted, Namespace: ns, Message: strconv.Itoa(i)})
	}
}

// read takes what a channel holds now.
func read(c <-chan sandboxmcp.Event) (all []sandboxmcp.Event) {
	for {
		select {
		case e, open := <-c:
			if !open {
				return all
			}
			all = append(all, e)
		default:
			return all
		}
	}
}

func messages(all []sandboxmcp.Event) (m []string) {
	for _, e := range all {
		m = append(m, e.Message)
	}
	return m
}

func TestAnEventIsWhole(t *testing.T) {
	b := newBus()
	c, stop := b.Subscribe("", false)
	defer stop()
	b.Emit(sandboxmcp.Event{Type: sandboxmcp.EventVaultAccessed, Namespace: "one", Message: "m", ID: "forged", Dropped: 7, Timestamp: time.Unix(1, 0)})
	e := <-c
	if _, number, ok := strings.Cut(e.ID, "-"); !ok || number != "1" {
		t.Errorf("id: got %q, want one of the bus that ends in -1", e.ID)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err = json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "id")
	want := map[string]any{"type": "vault.accessed", "namespace": "one", "message": "m", "data": map[string]any{}, "timestamp": "2026-03-04T05:06:07Z", "dropped": 0.0}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("event (-want +got):\n%s", d)
	}
}

func TestNamespacesAreApart(t *testing.T) {
	b := newBus()
	one, stopOne := b.Subscribe("one", false)
	defer stopOne()
	all, stopAll := b.Subscribe("", false)
	defer stopAll()
	tell(b, "one", 2)
	tell(b, "two", 1)
	if got := messages(read(one)); !cmp.Equal(got, []string{"0", "1"}) {
		t.Errorf("namespace one: got %v", got)
	}
	if got := messages(read(all)); !cmp.Equal(got, []string{"0", "1", "0"}) {
		t.Errorf("all: got %v", got)
	}
	if got := messages(b.Recent("two")); !cmp.Equal(got, []string{"0"}) {
		t.Errorf("kept of two: got %v", got)
	}
}

// A subscriber that does not read delays no publisher and keeps the newest events. The numbers
// of lost events that it gets add up.
func TestASlowListenerIsToldWhatItLost(t *testing.T) {
	b := newBus()
	c, stop := b.Subscribe("", false)
	defer stop()
	const n = 3*event.Unread + 10
	tell(b, "one", n)
	got := read(c)
	lost := int64(0)
	for _, e := range got {
		lost += e.Dropped
	}
	if len(got) != event.Unread || lost != n-event.Unread {
		t.Errorf("got %d events and %d lost, want %d and %d", len(got), lost, event.Unread, n-event.Unread)
	}
	if last := got[len(got)-1].Message; last != strconv.Itoa(n-1) {
		t.Errorf("last: got %s, want %d", last, n-1)
	}
	tell(b, "one", 1)
	if e := <-c; e.Dropped != 0 {
		t.Errorf("after it has caught up: got %d dropped", e.Dropped)
	}
	// All subscribers share the kept events: what one of them lost is not reported to another.
	for _, e := range b.Recent("") {
		if e.Dropped != 0 {
			t.Fatalf("a kept event: got %d dropped, want 0", e.Dropped)
		}
	}
}

func TestTheLastAreKept(t *testing.T) {
	b := newBus()
	if got := b.Recent(""); got == nil || len(got) != 0 {
		t.Errorf("of nothing: got %v, want an empty list", got)
	}
	tell(b, "one", event.Kept+3)
	got := messages(b.Recent(""))
	if len(got) != event.Kept || got[0] != "3" || got[len(got)-1] != strconv.Itoa(event.Kept+2) {
		t.Errorf("got %d from %s to %s", len(got), got[0], got[len(got)-1])
	}
	c, stop := b.Subscribe("", true)
	defer stop()
	tell(b, "two", 1)
	joined := read(c)
	lost := int64(0)
	for _, e := range joined {
		lost += e.Dropped
	}
	if n := len(joined); n != event.Unread || joined[n-1].Namespace != "two" || lost != 1 {
		t.Errorf("with what was kept: got %d events, the last of %s, %d lost", n, joined[n-1].Namespace, lost)
	}
}

func TestTheEndOfASubscription(t *testing.T) {
	b := newBus()
	c, stop := b.Subscribe("", false)
	tell(b, "one", 1)
	stop()
	stop()
	tell(b, "one", 1)
	if e, open := <-c; !open || e.Message != "0" {
		t.Errorf("what came before the end: got %v, %v", e, open)
	}
	if _, open := <-c; open {
		t.Error("got an open channel, want it closed")
	}
	d, stopD := b.Subscribe("", false)
	b.Close()
	b.Close()
	stopD()
	tell(b, "one", 1)
	if _, open := <-d; open {
		t.Error("after Close: got an event")
	}
	late, stopLate := b.Subscribe("", true)
	defer stopLate()
	if got := messages(read(late)); !cmp.Equal(got, []string{"0", "0"}) {
		t.Errorf("after Close with what was kept: got %v", got)
	}
}

// Several publish while several subscribe, come and go. Nothing hangs, and what a subscriber
// got and what it lost are together all events.
func TestManyAtOnce(t *testing.T) {
	b := newBus()
	const tellers, each, listeners = 4, 2000, 8
	var reading, telling sync.WaitGroup
	got := make([]int64, listeners)
	for i := range listeners {
		c, stop := b.Subscribe("", false)
		defer stop()
		reading.Go(func() {
			for e := range c {
				got[i] += 1 + e.Dropped
			}
		})
	}
	for range tellers {
		telling.Go(func() {
			tell(b, "one", each)
			_, stop := b.Subscribe("one", true)
			stop()
		})
	}
	telling.Wait()
	b.Close()
	reading.Wait()
	for i, n := range got {
		if n != tellers*each {
			t.Errorf("listener %d: got and lost %d, want %d", i, n, tellers*each)
		}
	}
}

func BenchmarkEmit(b *testing.B) {
	for _, bench := range []struct {
		name      string
		listeners int
	}{{"nobody", 0}, {"sixteen", 16}} {
		b.Run(bench.name, func(b *testing.B) {
			bus := event.New(nil)
			for range bench.listeners {
				_, stop := bus.Subscribe("", false)
				defer stop()
			}
			b.ReportAllocs()
			for b.Loop() {
				bus.Emit(sandboxmcp.Event{Type: sandboxmcp.EventExecutionStarted, Namespace: "one", Message: "python run", Data: map[string]any{"request_id": "r", "language": "python"}})
			}
		})
	}
}
