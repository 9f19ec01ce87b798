package server

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

// Bounds of the memory that all calls hold together. A client may send calls faster than
// they are answered, and a small call may have a large answer. None of them is for one caller alone.
const (
	maxCalls       = 4096            // calls in progress
	smallArguments = 64 << 10        // bytes; smaller arguments are not counted
	maxArguments   = 2 * maxLine     // bytes of the arguments of all calls in progress
	maxLarge       = 4               // answers with a whole stream or file that are being made or sent
	patience       = 5 * time.Second // time to make such an answer, and to receive it, while other callers wait
)

// load bounds what the calls in progress hold in memory.
type load struct{ large, calls, arguments *share.Bound }

func newLoad() *load {
	return &load{large: share.New(maxLarge, patience), calls: share.New(maxCalls, patience), arguments: share.New(maxArguments, patience)}
}

// inCall is what load knows of a call.
type inCall struct {
	caller    string
	alone     bool   // there are no other callers
	arguments int    // bytes
	large     bool   // its answer may contain a whole stream or file
	link      *link  // where the answer goes; nil: that is not known
	cancel    func() // ends the work on the answer
}

// admitted is a call that was let in.
type admitted struct {
	places []*share.Place
	large  *share.Place // nil: the answer is small
	link   *link
}

// enter registers a call. If the calls in progress hold too much, it fails with queue_full. It also
// fails if those of the caller would hold more than they leave to others: calls of older versions go on
// without a connection. Calls with small arguments still pass, so that a client can cancel.
//
// A call with a large answer waits until fewer than maxLarge are in progress, or until ctx ends. Of
// those that wait, the one goes first whose caller has fewest in progress; those whose client has gone
// are last. The caller of enter calls sends when the answer was made, and leave when it was sent.
func (l *load) enter(ctx context.Context, c inCall) (*admitted, error) {
	e := &admitted{link: c.link}
	ask := share.Ask{Caller: c.caller, Size: 1}
	place, full := l.calls.Try(ask)
	if full != nil {
		return nil, tooManyCalls(full)
	}
	e.places = append(e.places, place)
	if c.arguments > smallArguments {
		place, full = l.arguments.Try(share.Ask{Caller: c.caller, Size: int64(c.arguments), Alone: c.alone})
		if full != nil {
			e.leave()
			return nil, tooManyArguments(full, c.arguments)
		}
		e.places = append(e.places, place)
	}
	if !c.large {
		return e, nil
	}
	ask.End = c.cancel
	if c.link != nil {
		ask.Gone = c.link.gone
	}
	e.large = l.large.Enter(ask)
	e.places = append(e.places, e.large)
	if err := e.large.Wait(ctx); err != nil {
		e.leave()
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled").WithCause(err)
	}
	return e, nil
}

func tooManyCalls(f *share.Full) error {
	text, limit := "%d calls are not answered yet", int64(maxCalls)
	if f.Own {
		text, limit = "%d calls of this caller are not answered yet", f.Held
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, text, f.Held).
		WithHint("wait for some of the answers").With("limit", limit).With("retry_after_seconds", 2)
}

func tooManyArguments(f *share.Full, own int) error {
	e := sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "calls with %d MiB of arguments are not answered yet; with the %d MiB of this one they would have more than %d MiB", f.Held>>20, own>>20, maxArguments>>20)
	if f.Own {
		e = sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "calls of this caller with %d MiB of arguments are not answered yet; with the %d MiB of this one they would have more than is left for others", f.Held>>20, own>>20)
	}
	return e.WithHint("send large arguments one after the other").With("retry_after_seconds", 2)
}

// sends notes that the answer was made and is sent from now on.
func (e *admitted) sends() {
	if e.large == nil {
		return
	}
	var end func()
	if e.link != nil {
		end = e.link.cut
	}
	e.large.Begin(end)
}

// failure returns the error of a call that failed with err. A call that was ended in favor of another
// caller says so.
func (e *admitted) failure(err error) error {
	if err == nil || e.large == nil || !e.large.Ended() {
		return err
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "other callers waited for the answer, which took longer than %v", patience).
		WithHint("ask for less, or again").With("retry_after_seconds", 2).WithCause(err)
}

// leave ends the call.
func (e *admitted) leave() {
	for _, p := range e.places {
		p.Leave()
	}
}

// answered runs leave once the answer of a call was sent, because then the SDK ends the
// context of the call. Handlers call it only when they return, because a client may end the
// context earlier.
func answered(ctx context.Context, leave func()) { context.AfterFunc(ctx, leave) }

// link is the connection on which a call is answered.
type link struct {
	gone <-chan struct{} // closed when the client has gone
	cut  func()          // disconnects the client; again in a while if that was too early
}

// linkOf returns the link of a request's answer. gone is closed when the client has gone.
func linkOf(gone <-chan struct{}, w http.ResponseWriter) *link {
	control := http.NewResponseController(w)
	return &link{gone: gone, cut: func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) }}
}

// linkKey is the context key of the link of an event stream, for the calls on it.
type linkKey struct{}

// linkField is the field of the SDK's token that holds the link of a request.
const linkField = "sandboxmcp.link"

// linkFor returns the link of a call; nil: there is none, or it is not known.
func linkFor(ctx context.Context, extra *mcp.RequestExtra) *link {
	if extra != nil && extra.TokenInfo != nil {
		if l, ok := extra.TokenInfo.Extra[linkField].(*link); ok {
			return l
		}
	}
	l, _ := ctx.Value(linkKey{}).(*link)
	return l
}

// enterCall lets a call of a client in. ctx is its context, which cancel ends.
func (s *Server) enterCall(ctx context.Context, c inCall, id sandboxmcp.Identity) (*admitted, error) {
	c.caller, c.alone = door.Principal(id), !s.http || door.Alone(id)
	return s.load.enter(ctx, c)
}
