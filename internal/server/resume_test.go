package server_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// TestAnswersStayBesideOthers: a client that was disconnected fetches its answer with
// Last-Event-ID, although another caller has had many large answers meanwhile.
func TestAnswersStayBesideOthers(t *testing.T) {
	w := openWeb(t, newFake())
	a, b := w.legacyPeer("ka", "2025-11-25"), w.legacyPeer("kb", "2025-11-25")
	resp := a.begin(t.Context(), "tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "mine"}})
	first := ""
	for r := bufio.NewReader(resp.Body); first == ""; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the first event: got %v, want its id", err)
		}
		if id, is := strings.CutPrefix(line, "id:"); is {
			first = strings.TrimSpace(id)
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()

	for range 300 { // an answer repeats the id of its request
		resp = b.post(t.Context(), map[string]any{"jsonrpc": "2.0", "id": strings.Repeat("x", 120<<10), "method": "ping"})
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("ping: got %s, want 200", resp.Status)
		}
	}

	a.headers = map[string]string{"Last-Event-ID": first}
	resp = a.do(t.Context(), http.MethodGet, server.MCPPath, nil)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(got), "mine") {
		t.Errorf("the answer: got %s, %.200q and %v, want it", resp.Status, got, err)
	}
}
