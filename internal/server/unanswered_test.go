package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestUnreadAnswersAreBounded: a client of the oldest transport that reads no answers is refused
// further calls before their answers fill the memory, and other clients are not. Once it has read
// the answers, its calls are taken again.
func TestUnreadAnswersAreBounded(t *testing.T) {
	w := openWeb(t, newFake())
	s, other := w.sse("ka"), w.sse("ka")
	long := strings.Repeat("x", 200<<10)
	ping := func(n int) int {
		return s.send(map[string]any{"jsonrpc": "2.0", "id": fmt.Sprint(n) + long, "method": "ping"})
	}
	taken := 0
	for ping(taken) == http.StatusAccepted {
		if taken++; taken == 500 {
			t.Fatalf("got %d calls of %d bytes taken, want a refusal", taken, 200<<10)
		}
	}
	if got := other.send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"}); got != http.StatusAccepted {
		t.Errorf("another client: got status %d, want 202", got)
	}
	for range taken {
		if _, err := nextMessage(s.events); err != nil {
			t.Fatalf("an answer: got %v, want all %d", err, taken)
		}
	}
	if got := ping(taken); got != http.StatusAccepted {
		t.Errorf("after the answers: got status %d, want 202", got)
	}
}
