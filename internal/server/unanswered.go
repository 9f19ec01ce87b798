package server

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of what calls on event streams hold that have no answer yet. A client sends them by requests
// that are answered at once, and may leave the answers unread.
const (
	maxUnanswered    = 256 << 20 // bytes of all streams
	maxUnansweredOne = 16 << 20  // bytes of one stream; one more call may exceed it
	toolCost         = 4 << 10   // bytes that a call of a tool takes besides its arguments
	otherCost        = 64 << 10  // bytes of any other call, whose answer is not counted elsewhere
)

// unanswered counts what the calls of all event streams hold.
type unanswered struct {
	mu    sync.Mutex
	bytes int64
}

// countedTransport is an event stream whose calls are counted until they are answered.
type countedTransport struct {
	*mcp.SSEServerTransport

	all   *unanswered
	bytes int64                  // guarded by all.mu, as are the others
	calls map[jsonrpc.ID][]int64 // bytes of the calls in progress; a client may use an id twice
	over  bool
}

// Connect implements [mcp.Transport].
func (t *countedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.SSEServerTransport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConn{c, t}, nil
}

// admit fails with queue_full if the unanswered calls hold too much.
func (t *countedTransport) admit() error {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.bytes <= maxUnansweredOne && (t.all.bytes <= maxUnanswered || t.bytes == 0) {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "calls on event streams that hold %d MiB are not answered yet", t.all.bytes>>20).
		WithHint("read the answers").With("retry_after_seconds", 2)
}

func (t *countedTransport) add(r *jsonrpc.Request) {
	size := int64(len(r.Params)) + otherCost
	if r.Method == toolsCall {
		size += toolCost - otherCost
	}
	if id, isText := r.ID.Raw().(string); isText {
		size += 2 * int64(len(id)) // the answer repeats it
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.over {
		return
	}
	t.calls[r.ID] = append(t.calls[r.ID], size)
	t.bytes += size
	t.all.bytes += size
}

func (t *countedTransport) answered(id jsonrpc.ID) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	sizes := t.calls[id]
	if len(sizes) == 0 {
		return
	}
	t.bytes -= sizes[0]
	t.all.bytes -= sizes[0]
	if t.calls[id] = sizes[1:]; len(sizes) == 1 {
		delete(t.calls, id)
	}
}

// end forgets the calls of the stream, which has ended.
func (t *countedTransport) end() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.bytes -= t.bytes
	t.bytes, t.calls, t.over = 0, nil, true
}

// countedConn is a connection of a countedTransport.
type countedConn struct {
	mcp.Connection

	t *countedTransport
}

// Read counts a call.
func (c *countedConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); err == nil && ok && r.ID.IsValid() {
		c.t.add(r)
	}
	return m, err
}

// Write ends the count of a call with its answer, even if the answer was not sent: the stream then ends.
func (c *countedConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if r, ok := m.(*jsonrpc.Response); ok {
		c.t.answered(r.ID)
	}
	return err
}
