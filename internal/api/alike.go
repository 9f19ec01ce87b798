package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// alikeHeader carries the digest that the server has to have to run a request. See [Hello].
const alikeHeader = "Sandboxmcp-Alike"

// declinedField marks the error of a server that has not taken a request.
const declinedField = "declined"

func declined(why string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "%s", why).With(declinedField, true)
}

// Declined reports whether a server has not taken a request. It has then executed and recorded
// nothing.
func Declined(err error) bool {
	var e *sandboxmcp.Error
	return errors.As(err, &e) && e.Fields[declinedField] == true || Unreached(err)
}

// ExecuteAlike is [Client.Execute] in a server whose digest is alike and that can start the run
// at once. If it is another one, has no room or does not answer, the error is one that [Declined] reports.
func (c *Client) ExecuteAlike(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request, alike string) (sandboxmcp.Result, error) {
	q, err := executeQuestion(ctx, who, &req)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	q.alike = alike
	o, err := c.offer(ctx, q, req)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	return c.executeBy(ctx, who, req, o.send)
}

// atOnce lets a request of [Client.ExecuteAlike] leave the queue instead of waiting in it. full
// turns the error of such a request into one that [Declined] reports.
func atOnce(ctx context.Context, req *sandboxmcp.Request) (own context.Context, full func(error) error, end context.CancelFunc) {
	own, leave := context.WithCancelCause(ctx)
	busy := errors.New("the request has to wait")
	req.Queued = func(func() int) { leave(busy) }
	full = func(err error) error {
		if err != nil && (errors.Is(context.Cause(own), busy) || sandboxmcp.CodeOf(err) == sandboxmcp.CodeQueueFull) {
			return declined("the server has no room for the run")
		}
		return err
	}
	return own, full, func() { leave(nil) }
}

// relay passes a stream on to a writer that may be slow, so that reading from the server never
// waits for it: a server closes a connection that is not read. It holds at most the output of
// one run, which max_output_bytes bounds.
type relay struct {
	mu    sync.Mutex
	more  sync.Cond
	to    io.Writer
	parts [][]byte
	begun bool          // pass runs, or nothing will come
	ended bool          // nothing more will come, or be written
	idle  chan struct{} // closed when all is written
}

func newRelay(to io.Writer) *relay {
	r := &relay{to: to, idle: make(chan struct{})}
	r.more.L = &r.mu
	return r
}

// pass writes the parts until the stream has ended.
func (r *relay) pass() {
	defer close(r.idle)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.parts) == 0 {
			if r.ended {
				return
			}
			r.more.Wait()
		}
		part := r.parts[0]
		r.parts = r.parts[1:]
		r.mu.Unlock()
		_, _ = r.to.Write(part)
		r.mu.Lock()
	}
}

// Write keeps p, which must not change afterwards. It never fails.
func (r *relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = append(r.parts, p)
	if !r.begun {
		r.begun = true
		go r.pass()
	}
	r.more.Signal()
	return len(p), nil
}

// drop ends the stream and discards what is not written. A write that has begun goes on.
func (r *relay) drop() {
	r.mu.Lock()
	r.parts = nil
	r.mu.Unlock()
	r.end()
}

// end ends the stream.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if !r.begun {
		r.begun = true
		close(r.idle)
	}
	r.more.Signal()
}

// relayed puts a relay before each writer of a request. The function that it returns waits until
// the writers have got everything. After ctx has ended, it waits drainRest longer and then drops the
// rest, so that no write begins after it has returned.
func relayed(req *sandboxmcp.Request) (drain func(ctx context.Context)) {
	var all []*relay
	for _, w := range []*io.Writer{&req.Stdout, &req.Stderr} {
		if *w != nil {
			r := newRelay(*w)
			all, *w = append(all, r), r
		}
	}
	return func(ctx context.Context) {
		for _, r := range all {
			r.end()
		}
		for _, r := range all {
			select {
			case <-r.idle:
				continue
			case <-ctx.Done():
			}
			rest := time.NewTimer(drainRest)
			select {
			case <-r.idle:
			case <-rest.C:
				r.drop()
			}
			rest.Stop()
		}
	}
}

// drainRest is how long a writer may take to get the output of a run whose caller was interrupted.
const drainRest = 200 * time.Millisecond
