package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// read returns the events after an index, as texts.
func (h *history) read(t *testing.T, session, stream string, index int) (all []string, err error) {
	t.Helper()
	for data, failed := range h.After(t.Context(), session, stream, index) {
		if failed != nil {
			return nil, failed
		}
		all = append(all, string(data))
	}
	return all, nil
}

// add opens a stream and appends events to it.
func (h *history) add(t *testing.T, session, stream string, events ...string) {
	t.Helper()
	err := h.Open(t.Context(), session, stream)
	for _, e := range events {
		err = errors.Join(err, h.Append(t.Context(), session, stream, []byte(e)))
	}
	if err != nil {
		t.Fatalf("add to %s %q: got %v, want no error", session, stream, err)
	}
}

// nobody is the whose function of a history whose callers are not known.
func nobody(string) string { return "" }

// TestHistoryOfManySessions: a caller with many sessions that hold little each does not push out events of another caller.
func TestHistoryOfManySessions(t *testing.T) {
	h := newHistory(func(session string) string { return session[:1] })
	answer := `{"jsonrpc":"2.0","id":1,"result":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`
	h.add(t, "b", "call", "", answer)
	for i := range maxHistories {
		h.add(t, fmt.Sprint("a", i%maxSessionsEach), fmt.Sprint(i), strings.Repeat("y", 128<<10))
	}
	if got, err := h.read(t, "b", "call", 0); err != nil || !slices.Equal(got, []string{answer}) {
		t.Errorf("got %d events and %v, want the answer of the other caller", len(got), err)
	}
	for i := range 2 * maxHistories {
		h.add(t, fmt.Sprint("a", i), "left behind")
	}
	if _, err := h.read(t, "b", "call", 0); err != nil || len(h.sessions) > maxHistories {
		t.Errorf("with %d sessions got %v, want the answer of the other caller", len(h.sessions), err)
	}
	for id := range h.sessions {
		h.forgetSession(id)
	}
	if h.bytes != 0 || len(h.owners) != 0 {
		t.Errorf("after the end of all: got %d bytes and %d owners, want none", h.bytes, len(h.owners))
	}
}

// TestHistoryIsBounded: requests of a session leave nothing behind that grows with their number,
// and the call that still goes on keeps its place.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory(nobody)
	h.add(t, "s", ownStream)
	h.add(t, "s", "slow", "", `{"jsonrpc":"2.0","method":"notifications/progress"}`)
	for i := range 10 * maxStreams {
		h.add(t, "s", fmt.Sprint(i), "", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
	}
	if got := len(h.sessions["s"].past); got > maxStreams+1 {
		t.Errorf("got %d streams, want at most %d", got, maxStreams+1)
	}
	if _, err := h.read(t, "s", "0", -1); err == nil {
		t.Error("the oldest stream: got no error, want one")
	}
	h.add(t, "s", "slow", "late")
	if got, err := h.read(t, "s", "slow", 1); err != nil || !slices.Equal(got, []string{"late"}) {
		t.Errorf("the slow call: got %q and %v, want its answer", got, err)
	}
	for i := range 2 * maxHistories {
		h.add(t, fmt.Sprint(i), "left behind")
	}
	if got := len(h.sessions); got > maxHistories {
		t.Errorf("got %d sessions, want at most %d", got, maxHistories)
	}
}

// TestHistoryOfTheBusiest: the session with most bytes loses events, and no other one does.
func TestHistoryOfTheBusiest(t *testing.T) {
	h := newHistory(nobody)
	h.add(t, "quiet", ownStream, "first", "second")
	h.add(t, "quiet", "call", "", "answer")
	big := strings.Repeat("x", maxHistory/8)
	h.add(t, "busy", ownStream, "note")
	for i := range 20 {
		h.add(t, "busy", fmt.Sprint(i), "", big)
	}
	if h.bytes > maxHistory+len(big)+eventCost {
		t.Errorf("got %d bytes, want at most %d and an event", h.bytes, maxHistory)
	}
	for stream, want := range map[string][]string{ownStream: {"first", "second"}, "call": {"", "answer"}} {
		if got, err := h.read(t, "quiet", stream, -1); err != nil || !slices.Equal(got, want) {
			t.Errorf("the quiet session, stream %q: got %q and %v, want %q", stream, got, err, want)
		}
	}
	if _, err := h.read(t, "busy", "0", 0); !errors.Is(err, mcp.ErrEventsPurged) {
		t.Errorf("the oldest answer of the busy session: got %v, want %v", err, mcp.ErrEventsPurged)
	}
	if got, err := h.read(t, "busy", "19", 0); err != nil || len(got) != 1 {
		t.Errorf("its newest answer: got %d events and %v, want 1", len(got), err)
	}
	if got, err := h.read(t, "busy", ownStream, -1); err != nil || len(got) != 0 {
		t.Errorf("its own stream, begun anew: got %q and %v, want nothing", got, err)
	}
	h.add(t, "busy", ownStream, "next")
	if got, err := h.read(t, "busy", ownStream, -1); err != nil || !slices.Equal(got, []string{"next"}) {
		t.Errorf("its own stream after a further event: got %q and %v, want that", got, err)
	}
}

// TestHistoryEndsWithItsSession: nothing is kept of a session that has ended, also not what its
// last call appends.
func TestHistoryEndsWithItsSession(t *testing.T) {
	h := newHistory(nobody)
	h.add(t, "s", "call", "one", "two")
	if err := h.SessionClosed(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := h.Append(t.Context(), "s", "call", []byte("three")); err == nil {
		t.Error("an event after the end: got no error, want one")
	}
	if h.bytes != 0 || len(h.sessions) != 0 {
		t.Errorf("got %d bytes of %d sessions, want nothing", h.bytes, len(h.sessions))
	}
}
