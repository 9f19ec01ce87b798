package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// long makes a message longer than the number of bytes that the server counts for each call.
var long = strings.Repeat("x", 200<<10)

// longPing sends a call with a long answer, and returns the status.
func (s *sse) longPing(n int) int {
	s.t.Helper()
	return s.send(map[string]any{"jsonrpc": "2.0", "id": fmt.Sprint(n) + long, "method": "ping"})
}

// initialize begins the session. It does not read the answer.
func (s *sse) initialize() {
	s.t.Helper()
	begin := map[string]any{"protocolVersion": "2024-11-05", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}
	if got := s.send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}); got != http.StatusAccepted {
		s.t.Fatalf("initialize: got status %d, want 202", got)
	}
}

// fill sends calls with long answers until one is refused, and returns how many were taken.
func (s *sse) fill() (taken int) {
	s.t.Helper()
	for s.longPing(taken) == http.StatusAccepted {
		if taken++; taken == 500 {
			s.t.Fatalf("got %d calls of %d bytes taken, want a refusal", taken, len(long))
		}
	}
	return taken
}

// readAll reads so many answers.
func (s *sse) readAll(answers int) {
	s.t.Helper()
	for range answers {
		if _, err := nextMessage(s.events); err != nil {
			s.t.Fatalf("an answer: got %v, want all %d", err, answers)
		}
	}
}

// TestUnreadAnswersAreBounded: a client of the oldest transport that reads no answers is refused
// further calls before their answers fill the memory, and other clients are not. Once it has read
// the answers, its calls are taken again.
func TestUnreadAnswersAreBounded(t *testing.T) {
	w := openWeb(t, newFake())
	s, other := w.sse("ka"), w.sse("ka")
	taken := s.fill()
	if got := other.send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"}); got != http.StatusAccepted {
		t.Errorf("another client: got status %d, want 202", got)
	}
	s.readAll(taken)
	if got := s.longPing(taken); got != http.StatusAccepted {
		t.Errorf("after the answers: got status %d, want 202", got)
	}
}

// TestUnhandledNotificationsAreBounded: notifications wait until the answer to initialize is sent. A client that
// reads no answers is refused further ones before they fill the memory. Once it has read the answers, its
// notifications are taken again.
func TestUnhandledNotificationsAreBounded(t *testing.T) {
	w := openWeb(t, newFake())
	answers := w.sse("ka").fill() - 3
	s := w.sse("ka")
	for n := range answers {
		if got := s.longPing(n); got != http.StatusAccepted {
			t.Fatalf("call %d: got status %d, want 202", n, got)
		}
	}
	s.initialize()
	notify := func() int {
		return s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{"progressToken": 1, "progress": 1, "message": long}})
	}
	for taken := 0; notify() == http.StatusAccepted; taken++ {
		if taken == 500 {
			t.Fatalf("got %d notifications of %d bytes taken, want a refusal", taken, len(long))
		}
	}
	s.readAll(answers + 1)
	if got := notify(); got != http.StatusAccepted {
		t.Errorf("after the answers: got status %d, want 202", got)
	}
}

// TestCallsThatAreDroppedDoNotCount: a call with the id of one in progress gets no answer, and nothing holds it.
func TestCallsThatAreDroppedDoNotCount(t *testing.T) {
	f := newFake()
	s := openWeb(t, f).sse("ka")
	s.initialize()
	s.readAll(1)
	if got := s.send(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "block"}}}); got != http.StatusAccepted {
		t.Fatalf("got status %d, want 202", got)
	}
	<-f.started
	for n := range 300 {
		if got := s.send(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "ping"}); got != http.StatusAccepted {
			t.Fatalf("call %d with the id of one in progress: got status %d, want 202", n, got)
		}
	}
}
