package server

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestUnansweredCallsOfOneCallerLeaveRoom: streams of one caller, whose answers it does not read, hold at most as much as
// they leave to others. A caller who is alone holds everything.
func TestUnansweredCallsOfOneCallerLeaveRoom(t *testing.T) {
	id, err := jsonrpc.MakeID("1")
	if err != nil {
		t.Fatal(err)
	}
	large := &jsonrpc.Request{ID: id, Method: toolsCall, Params: make([]byte, maxUnansweredOne)}
	fill := func(all *unanswered, caller string, alone bool) (streams []*countedTransport) {
		for range 2 * maxUnanswered / maxUnansweredOne {
			s := &countedTransport{all: all, caller: caller, alone: alone, calls: map[jsonrpc.ID]held{}}
			small := *large
			small.Params = small.Params[:1]
			s.add(&small) // each stream may have one call in any case
			if s.admit() == nil {
				delete(s.calls, id)
				s.add(large)
			}
			streams = append(streams, s)
		}
		return streams
	}
	all := &unanswered{}
	greedy := fill(all, "greedy", false)
	if most := int64(maxUnanswered/2 + maxUnansweredOne + maxUnansweredOne/4); all.bytes > most {
		t.Errorf("got %d bytes held by one caller, want at most %d", all.bytes, most)
	}
	if code := sandboxmcp.CodeOf(greedy[len(greedy)-1].admit()); code != sandboxmcp.CodeQueueFull {
		t.Errorf("one more call of it: got %s, want queue_full", code)
	}
	other := &countedTransport{all: all, caller: "other", calls: map[jsonrpc.ID]held{}}
	for range 3 {
		if err := other.admit(); err != nil {
			t.Errorf("a call of another caller: got %v, want it admitted", err)
		}
		clear(other.calls)
		other.add(&jsonrpc.Request{ID: id, Method: toolsCall, Params: make([]byte, 1<<20)})
	}
	for _, s := range append(greedy, other) {
		s.end()
	}
	if all.bytes != 0 || len(all.of) != 0 {
		t.Errorf("got %d bytes held at the end, of %v, want none", all.bytes, all.of)
	}
	fill(all, "alone", true)
	if all.bytes < maxUnanswered {
		t.Errorf("got %d bytes held by a caller who is alone, want %d", all.bytes, maxUnanswered)
	}
}
