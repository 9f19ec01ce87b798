package server_test

import (
	"bufio"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// canShow are the capabilities of a client that shows forms.
func canShow() map[string]any {
	return map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}
}

// TestAKeyAnswersNoForm: the holder of a key runs code, so an answer of its client to a form is not one of a
// person. It gets no form, and waits for a decision elsewhere. The key of an operator decides.
func TestAKeyAnswersNoForm(t *testing.T) {
	for tool, args := range map[string]map[string]any{
		"request_egress":      {"domain": "api.example.com", "wait_seconds": 0.05},
		"request_host_access": {"pattern": "id -u", "wait_seconds": 0.05},
	} {
		t.Run(tool, func(t *testing.T) {
			f := newFake()
			w := openWeb(t, f)
			p := w.modernPeer("kb")
			p.can = canShow()
			if res := p.call(tool, args); res["resultType"] == "input_required" || structured(res)["status"] != "pending" {
				t.Errorf("a key of namespaces: got %v, want it pending without a form", res)
			}
			operator := w.modernPeer("ko")
			operator.can = canShow()
			_, state, _ := shownForm(t, operator.call(tool, args))
			answer := map[string]any{"name": tool, "arguments": args, "inputResponses": respond("accept", nil), "requestState": state}
			if res, _ := p.request("tools/call", answer)["result"].(map[string]any); res["isError"] != true {
				t.Errorf("a key of namespaces, with the form of the operator: got %v, want it refused", res)
			}
			if n := len(f.decisions()); n != 0 {
				t.Fatalf("got decisions %v, want none", f.decisions())
			}
			res, _ := operator.request("tools/call", answer)["result"].(map[string]any)
			if structured(res)["status"] != "approved" || len(f.decisions()) != 1 {
				t.Errorf("the operator: got %v and decisions %v, want it approved", res, f.decisions())
			}
		})
	}
}

// TestAKeyIsAskedByNoCall: neither is a client of a version in which the server calls it.
func TestAKeyIsAskedByNoCall(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	p := &peer{web: w, key: "kb"}
	p.request("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": canShow(), "clientInfo": map[string]any{"name": "t", "version": "1"}})
	p.version = "2025-06-18"
	_ = p.post(t.Context(), map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}).Body.Close()
	resp := p.begin(t.Context(), "tools/call", map[string]any{"name": "request_egress", "arguments": map[string]any{"domain": "api.example.com", "wait_seconds": 0.05}})
	defer resp.Body.Close()
	for events := bufio.NewReader(resp.Body); ; {
		m, err := nextMessage(events)
		if err != nil {
			t.Fatalf("got %v, want an answer", err)
		}
		if m["method"] == "elicitation/create" {
			t.Fatalf("got the form %v, want none", m)
		}
		if m["id"] == float64(p.next) {
			return
		}
	}
}

// TestFormsOverHTTPAreOfAClient: the record names the key whose client has answered.
func TestFormsOverHTTPAreOfAClient(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	p := w.modernPeer("ko")
	p.can = canShow()
	args := map[string]any{"domain": "api.example.com", "wait_seconds": 0.05}
	_, state, _ := shownForm(t, p.call("request_egress", args))
	p.request("tools/call", map[string]any{"name": "request_egress", "arguments": args, "inputResponses": respond("accept", nil), "requestState": state})
	if got := f.persons; len(got) != 1 || got[0] != (sandboxmcp.Caller{Namespace: "home", Actor: "mcp form of http key 3"}) {
		t.Errorf("got the persons %+v, want one who used the third key", got)
	}
}
