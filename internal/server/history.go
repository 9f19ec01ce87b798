package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp/internal/jsonparts"
)

// Bounds of a history.
const (
	maxHistory   = 32 << 20        // bytes of all sessions; one more event may exceed it
	maxStreams   = 128             // remembered streams of one session, besides its own stream
	maxHistories = 2 * maxSessions // sessions with events; a request that arrives while its session ends can leave events behind
	eventCost    = 100             // bytes that an event takes besides its data
)

// ownStream is the id of the stream of a session that belongs to no request.
const ownStream = ""

// history keeps the events of sessions for clients that fetch them with Last-Event-ID. It is
// an [mcp.EventStore]. That of the SDK keeps a record of every request until its session ends,
// and drops events of all sessions when one of them has many.
//
// If there are too many bytes, the caller with the most bytes loses events. It loses those of its session with the most
// bytes, from the stream that has had no event for the longest time. So a caller with busy sessions takes nothing from
// others.
type history struct {
	whose func(session string) string // the caller of a session; empty: not known yet

	mu       sync.Mutex
	bytes    int
	clock    uint64 // number of calls of Open
	sessions map[string]*pastSession
	owners   map[string]*pastOwner
}

// pastOwner counts what the sessions of a caller hold in a history.
type pastOwner struct {
	name            string // empty: the caller of this one session is not known yet
	bytes, sessions int
}

// pastSession is a session of a history.
type pastSession struct {
	owner  *pastOwner
	bytes  int
	opened uint64 // the history's clock at the latest Open
	past   map[string]*pastStream
	order  []*pastStream // by their latest event, or their Open; the oldest first
}

// pastStream is the stream of a request, or a session's own one.
type pastStream struct {
	id     string
	first  int // index of the first event that is kept
	events [][]byte
	bytes  int
	done   bool // an answer is kept; the call has ended, or the first of a batch
}

func newHistory(whose func(session string) string) *history {
	return &history{whose: whose, sessions: map[string]*pastSession{}, owners: map[string]*pastOwner{}}
}

// Open implements [mcp.EventStore].
func (h *history) Open(_ context.Context, session, stream string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	s := h.sessions[session]
	if s == nil {
		if len(h.sessions) >= maxHistories {
			h.forgetOldest()
		}
		s = &pastSession{owner: &pastOwner{sessions: 1}, past: map[string]*pastStream{}}
		h.sessions[session] = s
	}
	h.own(session, s)
	s.opened = h.clock
	if s.past[stream] != nil {
		return nil
	}
	if len(s.order) > maxStreams {
		h.forgetStream(s)
	}
	p := &pastStream{id: stream}
	s.past[stream] = p
	s.order = append(s.order, p)
	return nil
}

// own moves a session to the pastOwner of its caller, once the caller is known.
func (h *history) own(id string, s *pastSession) {
	if s.owner.name != "" {
		return
	}
	name := h.whose(id)
	if name == "" {
		return
	}
	o := h.owners[name]
	if o == nil {
		o = &pastOwner{name: name}
		h.owners[name] = o
	}
	o.bytes += s.bytes
	o.sessions++
	s.owner = o
}

// forgetOldest forgets a session of the caller with the most sessions: the one in which no stream was opened for the
// longest time.
func (h *history) forgetOldest() {
	oldest := ""
	for id, s := range h.sessions {
		o := h.sessions[oldest]
		if o == nil || s.owner.sessions > o.owner.sessions || s.owner.sessions == o.owner.sessions && s.opened < o.opened {
			oldest = id
		}
	}
	h.forgetSession(oldest)
}

func (h *history) forgetSession(id string) {
	s := h.sessions[id]
	if s == nil {
		return
	}
	h.bytes -= s.bytes
	s.owner.bytes -= s.bytes
	if s.owner.sessions--; s.owner.sessions == 0 {
		delete(h.owners, s.owner.name)
	}
	delete(h.sessions, id)
}

// forgetStream forgets a stream of a request: the oldest that has an answer, or else the oldest.
// A stream without an answer has a call that goes on, or an answer that was dropped.
func (h *history) forgetStream(s *pastSession) {
	i := slices.IndexFunc(s.order, func(p *pastStream) bool { return p.done && p.id != ownStream })
	if i < 0 {
		i = slices.IndexFunc(s.order, func(p *pastStream) bool { return p.id != ownStream })
	}
	p := s.order[i]
	h.empty(s, p)
	delete(s.past, p.id)
	s.order = slices.Delete(s.order, i, i+1)
}

// empty drops the events of a stream.
func (h *history) empty(s *pastSession, p *pastStream) {
	h.bytes -= p.bytes
	s.owner.bytes -= p.bytes
	s.bytes -= p.bytes
	*p = pastStream{id: p.id, first: p.first + len(p.events)}
}

// Append implements [mcp.EventStore]. It fails for a stream that was not opened or was
// forgotten. The event is then sent to a client that is connected, and not kept.
func (h *history) Append(_ context.Context, session, stream string, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, p := h.find(session, stream)
	if p == nil {
		return fmt.Errorf("event of stream %q: %w", stream, mcp.ErrEventsPurged)
	}
	h.makeRoom()
	p.done = p.done || answers(data)
	size := len(data) + eventCost
	p.events = append(p.events, data)
	p.bytes += size
	s.owner.bytes += size
	s.bytes += size
	h.bytes += size
	i := slices.Index(s.order, p)
	s.order = append(slices.Delete(s.order, i, i+1), p)
	return nil
}

// answers reports whether a message of the server is an answer.
func answers(data []byte) bool {
	in := jsonparts.Scanner(data)
	if begin, err := in.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return false
		}
		switch name.String() {
		case "result", "error":
			return true
		case "method":
			return false
		}
		if in.SkipValue() != nil {
			return false
		}
	}
	return false
}

func (h *history) find(session, stream string) (*pastSession, *pastStream) {
	s := h.sessions[session]
	if s == nil {
		return nil, nil
	}
	return s, s.past[stream]
}

// makeRoom drops events until no more than maxHistory bytes are kept.
func (h *history) makeRoom() {
	for h.bytes > maxHistory {
		var most *pastSession
		for _, s := range h.sessions {
			if most == nil || s.owner.bytes > most.owner.bytes || s.owner.bytes == most.owner.bytes && s.bytes > most.bytes {
				most = s
			}
		}
		i := slices.IndexFunc(most.order, func(p *pastStream) bool { return p.bytes > 0 })
		h.empty(most, most.order[i])
	}
}

// After implements [mcp.EventStore]. An index of -1 means that the client has no event yet. So
// a client that begins to read a session's own stream gets the events that are kept. From then
// on they are numbered from 0, as the SDK numbers them.
func (h *history) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	events, err := h.after(session, stream, index)
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

var errNoStream = errors.New("the stream is not known")

func (h *history) after(session, stream string, index int) ([][]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, p := h.find(session, stream)
	begins := stream == ownStream && index < 0
	switch {
	case p == nil && begins:
		return nil, nil
	case p == nil:
		return nil, errNoStream
	case begins:
		p.first = 0
	case index+1 < p.first:
		return nil, mcp.ErrEventsPurged
	}
	return slices.Clone(p.events[min(index+1-p.first, len(p.events)):]), nil
}

// SessionClosed implements [mcp.EventStore].
func (h *history) SessionClosed(_ context.Context, session string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetSession(session)
	return nil
}
