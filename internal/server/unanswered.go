package server

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of what messages on event streams hold until they are answered or handled. A client sends them by
// requests that are answered at once, and may leave the answers unread.
const (
	maxUnanswered    = 256 << 20 // bytes of all streams
	maxUnansweredOne = 16 << 20  // bytes of one stream; one more call may exceed it
	toolCost         = 4 << 10   // bytes that a call of a tool, or a notification, takes besides its parameters
	otherCost        = 64 << 10  // bytes of any other call, whose answer is not counted elsewhere
)

// unanswered counts what the messages of all event streams hold.
type unanswered struct {
	mu    sync.Mutex
	bytes int64
	of    map[string]int64 // of each caller that holds some
}

// addLocked changes what the messages of a caller hold.
func (u *unanswered) addLocked(caller string, bytes int64) {
	u.bytes += bytes
	if u.of == nil {
		u.of = map[string]int64{}
	}
	if u.of[caller] += bytes; u.of[caller] == 0 {
		delete(u.of, caller)
	}
}

// countedTransport is an event stream whose calls are counted until they are answered. Notifications are counted
// while they wait for the answer to initialize: the SDK handles each message after that was sent.
type countedTransport struct {
	*mcp.SSEServerTransport

	all    *unanswered
	caller string
	alone  bool                // there are no other callers
	bytes  int64               // guarded by all.mu, as are the others
	calls  map[jsonrpc.ID]held // calls whose answer is not being sent yet
	begins int                 // calls of initialize that are not answered
	behind int64               // bytes of the notifications that wait for these answers
	over   bool
}

// held is what a call holds.
type held struct {
	bytes  int64
	begins bool // it is a call of initialize
}

// Connect implements [mcp.Transport].
func (t *countedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.SSEServerTransport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConn{c, t}, nil
}

// admit fails with queue_full if the unanswered calls hold too much, or those of the caller more than is left for
// others.
func (t *countedTransport) admit() error {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	mine := t.all.of[t.caller]
	left := maxUnanswered - t.all.bytes
	if t.bytes <= maxUnansweredOne && (left >= mine || t.alone && left >= 0 || t.bytes == 0) {
		return nil
	}
	if !t.alone {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "calls of this caller on event streams that hold %d MiB are not answered yet", mine>>20).
			WithHint("read the answers").With("retry_after_seconds", 2)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "calls on event streams that hold %d MiB are not answered yet", t.all.bytes>>20).
		WithHint("read the answers").With("retry_after_seconds", 2)
}

// add counts a message. It does not count a call with the id of one in progress, which the SDK drops.
func (t *countedTransport) add(r *jsonrpc.Request) {
	size := int64(len(r.Params)) + toolCost
	if r.IsCall() && r.Method != toolsCall {
		size += otherCost - toolCost
	}
	if id, isText := r.ID.Raw().(string); isText {
		size += 2 * int64(len(id)) // the answer repeats it
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	_, dropped := t.calls[r.ID]
	switch {
	case t.over || dropped:
		return
	case r.IsCall():
		c := held{bytes: size, begins: r.Method == "initialize"}
		t.calls[r.ID] = c
		if c.begins {
			t.begins++
		}
	case t.begins > 0:
		t.behind += size
	default: // it is handled at once
		return
	}
	t.bytes += size
	t.all.addLocked(t.caller, size)
}

// answering returns what a call holds whose answer is about to be sent. From now on a call may have the same id.
func (t *countedTransport) answering(id jsonrpc.ID) held {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	c := t.calls[id]
	delete(t.calls, id)
	return c
}

// answered ends the count of a call, and of the notifications that have waited for its answer.
func (t *countedTransport) answered(c held) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.over {
		return
	}
	if c.begins {
		if t.begins--; t.begins == 0 {
			c.bytes += t.behind
			t.behind = 0
		}
	}
	t.bytes -= c.bytes
	t.all.addLocked(t.caller, -c.bytes)
}

// end forgets the calls of the stream, which has ended.
func (t *countedTransport) end() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.addLocked(t.caller, -t.bytes)
	t.bytes, t.calls, t.over = 0, nil, true
}

// countedConn is a connection of a countedTransport.
type countedConn struct {
	mcp.Connection

	t *countedTransport
}

// Read counts a message.
func (c *countedConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); err == nil && ok {
		c.t.add(r)
	}
	return m, err
}

// Write ends the count of a call with its answer, even if the answer was not sent: the stream then ends.
func (c *countedConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Response); ok {
		defer c.t.answered(c.t.answering(r.ID))
	}
	return c.Connection.Write(ctx, m)
}
