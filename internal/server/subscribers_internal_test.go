package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestTheEndOfASubscriptionVisitsNoOthers: clients that end thousands of subscriptions at once would keep a processor
// busy for a minute. Visiting the subscriptions of others would need memory for their namespaces.
func TestTheEndOfASubscriptionVisitsNoOthers(t *testing.T) {
	b := subscribers{of: map[*mcp.ServerSession]map[string]subscription{}, each: map[sandboxmcp.Namespace]int{}, followed: map[sandboxmcp.Namespace]*follower{}}
	add := func(client *mcp.ServerSession, ns, uri string) {
		t.Helper()
		if _, err := b.add(client, subscription{uri: uri, ns: sandboxmcp.Namespace(ns)}); err != nil {
			t.Fatal(err)
		}
	}
	const others, mine = 200, 200
	for i := range others {
		add(new(mcp.ServerSession), fmt.Sprint("other-", i), "run://x/stdout")
	}
	client := new(mcp.ServerSession)
	uris := make([]string, mine)
	for i := range uris {
		uris[i] = fmt.Sprintf("run://%d/stdout", i)
		add(client, "mine", uris[i])
	}
	ended := false
	b.followed["mine"].stop = func() { ended = true }
	next := 0
	if got := testing.AllocsPerRun(mine-2, func() { b.remove(client, uris[next]); next++ }); got != 0 { // it calls the function once more
		t.Errorf("got %v allocations for the end of a subscription, want none", got)
	}
	if ended {
		t.Error("the follower has ended before the last subscription")
	}
	add(client, "other-1", uris[next]) // the client subscribes again, in another namespace
	if b.remove(client, uris[next]); !ended || len(b.followed) != others || len(b.of) != others || len(b.each) != others {
		t.Errorf("got ended %t, %d followers and %d clients, want true and %d of the others", ended, len(b.followed), len(b.of), others)
	}
}

// TestNamespacesHaveSoManySubscriptions: many clients of a namespace do not slow down the requests of others, and keep no other
// namespace from its subscriptions.
func TestNamespacesHaveSoManySubscriptions(t *testing.T) {
	b := subscribers{of: map[*mcp.ServerSession]map[string]subscription{}, each: map[sandboxmcp.Namespace]int{}, followed: map[sandboxmcp.Namespace]*follower{}}
	clients := make([]*mcp.ServerSession, 20)
	for i := range clients {
		clients[i] = new(mcp.ServerSession)
		for n := range maxSubscriptions {
			_, err := b.add(clients[i], subscription{uri: fmt.Sprintf("run://%d-%d/stdout", i, n), ns: "many"})
			if full := i*maxSubscriptions+n >= maxInNamespace; (sandboxmcp.CodeOf(err) == sandboxmcp.CodeQueueFull) != full {
				t.Fatalf("client %d, subscription %d: got %v, want refused %t", i, n, err, full)
			}
		}
	}
	again := subscription{uri: "run://0-0/stdout", ns: "many"}
	if _, err := b.add(clients[0], again); err != nil {
		t.Errorf("a subscription that is there: got %v", err)
	}
	for _, client := range []*mcp.ServerSession{clients[0], new(mcp.ServerSession)} {
		if _, err := b.add(client, subscription{uri: again.uri, ns: "other"}); err != nil {
			t.Errorf("another namespace: got %v", err)
		}
	}
	if _, err := b.add(clients[1], subscription{uri: "run://1-0/stdout", ns: "many"}); err != nil {
		t.Errorf("a subscription of another client that is there: got %v", err)
	}
}

// slowEngine is an engine to whose events a call of meanwhile comes while they are asked for.
type slowEngine struct {
	Engine

	meanwhile func()
	followed  []context.Context
}

func (e *slowEngine) Follow(ctx context.Context, _ sandboxmcp.Caller, _ bool) (<-chan sandboxmcp.Event, error) {
	e.followed = append(e.followed, ctx)
	if meanwhile := e.meanwhile; meanwhile != nil {
		e.meanwhile = nil
		meanwhile()
	}
	events := make(chan sandboxmcp.Event)
	context.AfterFunc(ctx, func() { close(events) })
	return events, nil
}

// TestANamespaceHasOneFollower: if the only subscription ends and another one begins while the first follower begins, one
// follower is left, and it ends with that subscription.
func TestANamespaceHasOneFollower(t *testing.T) {
	e := &slowEngine{}
	s := &Server{engine: e, subscribers: subscribers{of: map[*mcp.ServerSession]map[string]subscription{}, each: map[sandboxmcp.Namespace]int{}, followed: map[sandboxmcp.Namespace]*follower{}}}
	client, uri := new(mcp.ServerSession), "run://x/stdout"
	subscribe := func() {
		first, err := s.subscribers.add(client, subscription{uri: uri, ns: "a"})
		if err != nil || first == nil {
			t.Fatalf("got follower %v, %v, want a new one", first, err)
		}
		s.followEvents(sandboxmcp.Caller{Namespace: "a"}, first)
	}
	e.meanwhile = func() {
		s.subscribers.remove(client, uri)
		subscribe()
	}
	subscribe()
	for n, left := range []bool{false, true} {
		if alive := e.followed[n].Err() == nil; alive != left {
			t.Errorf("follower %d: got alive %v, want %v", n+1, alive, left)
		}
	}
	if s.subscribers.remove(client, uri); e.followed[0].Err() == nil || e.followed[1].Err() == nil {
		t.Error("without subscriptions: got a follower, want none")
	}
}
