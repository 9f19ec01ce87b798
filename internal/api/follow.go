package api

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	maxFollow      = 64               // concurrent followers of events on one listener
	maxFollowEach  = 16               // of them, those of one caller over HTTP
	heartbeat      = 15 * time.Second // time without an event after which a comment is sent
	lastEventID    = "Last-Event-ID"
	followPath     = "/v1/events"
	restFollowPath = "/events"
)

// followers counts the followers of events on one listener. A caller that connects again and
// again takes no place from others: after its first one it leaves as many to them as it has. Its methods may be called
// concurrently.
type followers struct {
	each int // places of one caller; all of them: the callers are not told apart

	mu    sync.Mutex // guards the fields below
	total int
	by    map[string]int
}

// enter takes a place. The caller calls leave.
func (f *followers) enter(actor string) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have, most, own := f.total, maxFollow, f.by[actor]
	if left := maxFollow - f.total; own >= f.each || own > 0 && own >= left && f.each < maxFollow {
		have, most = own, min(own, f.each)
	}
	if have >= most {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "there are %d followers of events, which is the limit", most).
			WithHint("end one of them first").With(retryAfter, 5)
	}
	if f.by == nil {
		f.by = map[string]int{}
	}
	f.total++
	f.by[actor]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.total--
		if f.by[actor]--; f.by[actor] == 0 {
			delete(f.by, actor)
		}
	}, nil
}

// count returns the number of followers.
func (f *followers) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// followRoute streams events.
type followRoute struct{ path string }

func (v followRoute) about() description {
	return description{
		method: "GET", path: v.path, in: reflect.TypeFor[followIn](), media: eventStream, fails: []sandboxmcp.Code{sandboxmcp.CodeQueueFull},
		doc: "Streams events as server-sent events, whose data is an event in JSON. A comment is sent every " + heartbeat.String() + ". " +
			"A client that connects again with Last-Event-ID gets the events that it missed; an event of type gap comes first if some may be lost.",
	}
}

// serve sends events until the caller closes the connection or is too slow, or the server
// closes.
func (followRoute) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	c, err := h.caller(r, true)
	var in followIn
	if err == nil {
		err = h.decode(w, r, maxRequest, c, &in)
	}
	var leave func()
	if err == nil {
		leave, err = h.followers.enter(c.Actor)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ending, cancel)() //nolint:contextcheck // it also ends with the server
	events, err := h.service.Follow(ctx, c, in.Recent || in.LastEventID != "")
	if err != nil {
		h.fail(w, err)
		return
	}
	unhurried(w)
	out := newSender(w)
	if out.begin() != nil || r.Method == http.MethodHead {
		return
	}
	h.pump(out, events, resumption{last: in.LastEventID})
}

// pump sends events, and a comment when there is none for a while, until the channel is closed or
// the caller cannot be reached.
func (h *handler) pump(out *sender, events <-chan sandboxmcp.Event, from resumption) {
	beat := time.NewTicker(h.beat)
	defer beat.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			skip, gap := from.next(e.ID)
			if skip {
				continue
			}
			if gap {
				lost := lostEvents{LastEventID: from.last, Message: "events after this one may be lost: the server keeps the latest only, or was started anew"}
				if out.send("gap", "", lost) != nil {
					return
				}
			}
			if out.send("message", e.ID, e) != nil {
				return
			}
			beat.Reset(h.beat)
		case <-beat.C:
			if out.comment() != nil {
				return
			}
		}
	}
}

// lostEvents is the data of an event of type gap.
type lostEvents struct {
	LastEventID string `json:"last_event_id"`
	Message     string `json:"message"`
}

// resumption finds out which events a caller has already got. Numbers of events rise by one, over
// all namespaces.
type resumption struct {
	last    string // the id of the last one; empty: none
	skipped bool   // an event up to the last one was there, so that none is lost
	past    bool   // all that follow are new
}

// next reports whether the event with an id is skipped, and whether events before it may be lost.
func (r *resumption) next(id string) (skip, gap bool) {
	if r.last == "" || r.past {
		return false, false
	}
	mark, n := splitID(r.last)
	server, number := splitID(id)
	if server == mark && number <= n {
		r.skipped = true
		return true, false
	}
	r.past = true
	return false, !r.skipped && (server != mark || number != n+1)
}

// splitID splits the id of an event into the mark of its server and its number. A text that is no
// id has the number 0, which no event has.
func splitID(id string) (mark string, number uint64) {
	i := strings.LastIndexByte(id, '-')
	if i < 0 {
		return id, 0
	}
	number, _ = strconv.ParseUint(id[i+1:], 10, 64)
	return id[:i], number
}

// Follow implements [sandboxmcp.Events]. The channel is closed when ctx ends or the
// connection is lost.
func (c *Client) Follow(ctx context.Context, who sandboxmcp.Caller, recent bool) (<-chan sandboxmcp.Event, error) {
	path, query, _, err := encodeInput(followPath, followIn{Recent: recent})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	answered := time.AfterFunc(callTimeout, func() { cancel(context.DeadlineExceeded) })            // gives up on a server that hangs
	res, err := c.ask(ctx, question{method: http.MethodGet, path: path, query: naming(query, who)}) //nolint:bodyclose // the goroutine closes it
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answered.Stop()
	out := make(chan sandboxmcp.Event)
	go func() {
		defer close(out)
		defer cancel(nil)
		defer func() { _ = res.Body.Close() }()
		_ = receive(res.Body, func(_ string, data []byte) error {
			var e sandboxmcp.Event
			if err := decodeExact(data, &e); err != nil {
				return err
			}
			select {
			case out <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return out, nil
}
