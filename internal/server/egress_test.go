package server_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestHintsHoldCommandsToPaste: also the hint that a code has if its error has none.
func TestHintsHoldCommandsToPaste(t *testing.T) {
	f := newFake()
	f.config.Invocation = sandboxmcp.Invocation{Program: "/opt/my bin/sandboxmcp"}
	f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no")
	}
	body := structured(legacy(t, f).call("execute_code", map[string]any{"code": "1"}))
	if hint, _ := body["hint"].(string); !strings.Contains(hint, "`'/opt/my bin/sandboxmcp' doctor`") {
		t.Errorf("got %q, want the path of the program", body)
	}
}

func TestRequestEgress(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	got := p.good("request_egress", map[string]any{"domain": "api.example.com", "reason": "rates", "port": 8443, "wait_seconds": 0})
	if got["status"] != "pending" || got["approved"] != false || got["approval_id"] != question || got["expires_at"] != nil {
		t.Errorf("got %v, want it pending as %s without an end", got, question)
	}
	if how, _ := got["how_to_approve"].(string); !strings.Contains(how, "sandboxmcp egress approve "+question) {
		t.Errorf("how_to_approve: got %q, want the command with %s", how, question)
	}
	want := []sandboxmcp.EgressAsk{{Domain: "api.example.com", Port: 8443, Reason: "rates"}}
	if d := cmp.Diff(want, f.asksSoFar()); d != "" {
		t.Errorf("ask (-want +got):\n%s", d)
	}
	f.terminal(false)
	if got := p.good("request_egress", map[string]any{"domain": "api.example.com"}); got["status"] != "approved" || got["approved"] != true {
		t.Errorf("got %v, want it approved", got)
	}
	if w := f.asksSoFar()[1].Wait; w != 45*time.Second {
		t.Errorf("got a wait of %s where nothing was said, want 45 s", w)
	}
	for _, bad := range []string{
		`{}`, `{"domain":""}`, `{"domain":"*"}`, `{"domain":"http://a.example/"}`, `{"domain":"a.example.com","wait_seconds":46}`, `{"domain":"a.example.com","wait_seconds":-1}`,
		`{"domain":"a.example.com","port":0}`, `{"domain":"a.example.com","port":1.5}`, `{"domain":"a.example.com","approve":true}`, `{"domain":["a.example.com"]}`,
	} {
		p.fails(sandboxmcp.CodeInvalidArgument, "request_egress", nil2raw(bad))
	}
	p.fails(sandboxmcp.CodeAccessDenied, "request_egress", map[string]any{"domain": "a.example.com", "namespace": "other"})
	if len(f.decisions()) != 0 {
		t.Error("got a decision by a call, want none")
	}
}

// No argument widens, and an answer to a form that was not shown is none.
func TestFormsCannotBeMadeUp(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	for _, extra := range []map[string]any{
		{"inputResponses": map[string]any{"approve": map[string]any{"action": "accept"}}},
		{"inputResponses": map[string]any{"approve": map[string]any{"action": "accept"}}, "requestState": "e30.e30"},
		{"requestState": "x"},
	} {
		params := map[string]any{"name": "request_egress", "arguments": map[string]any{"domain": "api.example.com"}}
		maps.Copy(params, extra)
		res, _ := p.request("tools/call", params)["result"].(map[string]any)
		if res["isError"] != true || structured(res)["error"] != "invalid_argument" {
			t.Errorf("%v: got %v, want invalid_argument", extra, res)
		}
	}
	if len(f.decisions()) != 0 {
		t.Errorf("got decisions %v, want none", f.decisions())
	}
}

// TestFormForAHostCommand: request_host_access shows a form, too. Its answer is bound to the tool.
func TestFormForAHostCommand(t *testing.T) {
	f := newFake()
	p := dial(t, f)
	const tool = "request_host_access"
	args := map[string]any{"pattern": "api.example.com", "wait_seconds": 5}
	message, state, _ := shownForm(t, p.modernOf(tool, args, nil))
	for _, part := range []string{`"restart \u202eapi.example.com"`, "outside of every sandbox", "namespace team", "Warning: it executes others.", "in the model's words, which nobody has checked"} {
		if !strings.Contains(message, part) {
			t.Errorf("got the form %q, want %q in it", message, part)
		}
	}
	yes := map[string]any{"inputResponses": respond("accept", map[string]any{"open_for": "one run"}), "requestState": state}
	if res := p.modernOf("request_egress", map[string]any{"domain": "api.example.com", "wait_seconds": 5}, yes); res["isError"] != true {
		t.Errorf("for another tool: got %v, want an error", res)
	}
	if res := p.modernOf(tool, args, yes); structured(res)["status"] != "approved" || structured(res)["pattern"] != "api.example.com" {
		t.Errorf("got %v, want it approved", res)
	}
	want := []sandboxmcp.AccessDecision{{ID: question, SHA256: "sum-of-question", Scope: sandboxmcp.GrantOnce}}
	if d := cmp.Diff(want, f.decisions()); d != "" {
		t.Errorf("decided (-want +got):\n%s", d)
	}
}

// modern makes a call of the version without a handshake, by a client that shows forms.
func (p *pipe) modern(args map[string]any, more map[string]any) map[string]any {
	p.t.Helper()
	return p.modernOf("request_egress", args, more)
}

func (p *pipe) modernOf(tool string, args map[string]any, more map[string]any) map[string]any {
	p.t.Helper()
	params := map[string]any{
		"name": tool, "arguments": args,
		"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{"form": map[string]any{}}},
		},
	}
	maps.Copy(params, more)
	m := p.request("tools/call", params)
	res, _ := m["result"].(map[string]any)
	if res == nil {
		p.t.Fatalf("got %v, want a result", m)
	}
	return res
}

func shownForm(t *testing.T, res map[string]any) (message, state string, schema map[string]any) {
	t.Helper()
	if res["resultType"] != "input_required" {
		t.Fatalf("got %v, want a form", res)
	}
	requests, _ := res["inputRequests"].(map[string]any)
	ask, _ := requests["approve"].(map[string]any)
	params, _ := ask["params"].(map[string]any)
	message, _ = params["message"].(string)
	schema, _ = params["requestedSchema"].(map[string]any)
	state, _ = res["requestState"].(string)
	if len(requests) != 1 || ask["method"] != "elicitation/create" || message == "" || state == "" {
		t.Fatalf("got %v, want one form with a message and a state", res)
	}
	return message, state, schema
}

func respond(action string, content map[string]any) map[string]any {
	r := map[string]any{"action": action}
	if content != nil {
		r["content"] = content
	}
	return map[string]any{"approve": r}
}

func TestFormModern(t *testing.T) {
	args := map[string]any{"domain": "api.example.com", "wait_seconds": 5}
	for name, tt := range map[string]struct {
		answer map[string]any
		status string
		want   []sandboxmcp.AccessDecision
	}{
		"accept":   {respond("accept", nil), "approved", []sandboxmcp.AccessDecision{{Scope: sandboxmcp.GrantDuration, For: 24 * time.Hour}}},
		"an hour":  {respond("accept", map[string]any{"open_for": "1 hour"}), "approved", []sandboxmcp.AccessDecision{{Scope: sandboxmcp.GrantDuration, For: time.Hour}}},
		"one run":  {respond("accept", map[string]any{"open_for": "one run"}), "approved", []sandboxmcp.AccessDecision{{Scope: sandboxmcp.GrantOnce}}},
		"decline":  {respond("decline", nil), "denied", []sandboxmcp.AccessDecision{{Deny: true}}},
		"cancel":   {respond("cancel", nil), "pending", nil},
		"for good": {respond("accept", map[string]any{"open_for": "for ever"}), "pending", nil},
		"nonsense": {respond("agree", nil), "pending", nil},
		"nothing":  {map[string]any{}, "pending", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			p := dial(t, f)
			message, state, schema := shownForm(t, p.modern(args, nil))
			for _, part := range []string{"Open api.example.com (ports 80 and 443)", "namespace team", "2031-02-03T04:05:06Z", `in the model's words, which nobody has checked: "say \"yes\"\nnow"`} {
				if !strings.Contains(message, part) {
					t.Errorf("got the form %[2]q, want %[1]q in it", part, message)
				}
			}
			if schema["type"] != "object" || schema["properties"] == nil {
				t.Errorf("got schema %v, want an object with properties", schema)
			}
			res := p.modern(args, map[string]any{"inputResponses": tt.answer, "requestState": state})
			if res["isError"] == true || structured(res)["status"] != tt.status {
				t.Errorf("got %v, want %s", res, tt.status)
			}
			for i := range tt.want {
				tt.want[i].ID, tt.want[i].SHA256 = question, "sum-of-question"
			}
			if d := cmp.Diff(tt.want, f.decisions()); d != "" {
				t.Errorf("decided (-want +got):\n%s", d)
			}
			// It was answered once: the same answer again is none.
			if res := p.modern(args, map[string]any{"inputResponses": respond("accept", nil), "requestState": state}); res["isError"] != true {
				t.Errorf("got %v, want the second answer to a form refused", res)
			}
			if got := len(f.decisions()); got != len(tt.want) {
				t.Errorf("got %d decisions, want %d", got, len(tt.want))
			}
		})
	}
}

// A form is one of its call: of these arguments, in this namespace, from this server.
func TestFormIsBound(t *testing.T) {
	f := newFake()
	p := dial(t, f)
	args := map[string]any{"domain": "api.example.com", "wait_seconds": 5}
	_, state, _ := shownForm(t, p.modern(args, nil))
	yes := respond("accept", nil)
	body, seal, _ := strings.Cut(state, ".")
	other := dial(t, newFake())
	for name, res := range map[string]map[string]any{
		"other arguments": p.modern(map[string]any{"domain": "evil.example.com", "wait_seconds": 5}, map[string]any{"inputResponses": yes, "requestState": state}),
		"other port":      p.modern(map[string]any{"domain": "api.example.com", "wait_seconds": 5, "port": 22}, map[string]any{"inputResponses": yes, "requestState": state}),
		"changed":         p.modern(args, map[string]any{"inputResponses": yes, "requestState": body[:len(body)-2] + "AA." + seal}),
		"no seal":         p.modern(args, map[string]any{"inputResponses": yes, "requestState": body}),
		"other server":    other.modern(args, map[string]any{"inputResponses": yes, "requestState": state}),
	} {
		if res["isError"] != true || structured(res)["error"] != "invalid_argument" {
			t.Errorf("%s: got %v, want invalid_argument", name, res)
		}
	}
	if len(f.decisions()) != 0 {
		t.Errorf("got decisions %v, want none", f.decisions())
	}
	if res := p.modern(args, map[string]any{"inputResponses": yes, "requestState": state}); structured(res)["status"] != "approved" {
		t.Errorf("its own answer: got %v, want approved", res)
	}
}

// A form is not shown again after it was dismissed, and not for a call that does not wait.
func TestFormIsShownOnce(t *testing.T) {
	f := newFake()
	p := dial(t, f)
	if res := p.modern(map[string]any{"domain": "api.example.com", "wait_seconds": 0}, nil); structured(res)["status"] != "pending" {
		t.Errorf("got %v, want it pending", res)
	}
	args := map[string]any{"domain": "api.example.com", "wait_seconds": 0.05}
	_, state, _ := shownForm(t, p.modern(args, nil))
	p.modern(args, map[string]any{"inputResponses": respond("cancel", nil), "requestState": state})
	res := p.modern(args, nil)
	if res["resultType"] == "input_required" || structured(res)["status"] != "pending" {
		t.Errorf("got %v, want it pending without a form", res)
	}
	if how, _ := structured(res)["how_to_approve"].(string); !strings.Contains(how, question) {
		t.Errorf("how_to_approve: got %q, want %q in it", how, question)
	}
}

// A terminal answered while the form was with the client.
func TestFormIsLate(t *testing.T) {
	f := newFake()
	p := dial(t, f)
	args := map[string]any{"domain": "api.example.com", "wait_seconds": 5}
	_, state, _ := shownForm(t, p.modern(args, nil))
	f.terminal(true)
	res := p.modern(args, map[string]any{"inputResponses": respond("accept", nil), "requestState": state})
	if structured(res)["status"] != "denied" {
		t.Errorf("got %v, want it denied", res)
	}
}

// forms is a client of the version with a handshake that shows forms.
func (p *pipe) forms(version string) {
	p.t.Helper()
	p.request("initialize", map[string]any{"protocolVersion": version, "capabilities": map[string]any{"elicitation": map[string]any{}}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	p.line(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// elicited reads until the server asks for a form, and answers it.
func (p *pipe) elicited(result any) map[string]any {
	p.t.Helper()
	for {
		m := p.read()
		if m["method"] != "elicitation/create" {
			p.notes = append(p.notes, m)
			continue
		}
		if result != nil {
			b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m["id"], "result": result})
			if err != nil {
				p.t.Fatal(err)
			}
			p.line(string(b))
		}
		params, _ := m["params"].(map[string]any)
		return params
	}
}

func TestFormLegacy(t *testing.T) {
	for name, tt := range map[string]struct {
		answer any
		status string
	}{
		"accept":  {map[string]any{"action": "accept", "content": map[string]any{"open_for": "1 hour"}}, "approved"},
		"decline": {map[string]any{"action": "decline"}, "denied"},
		"cancel":  {map[string]any{"action": "cancel"}, "pending"},
	} {
		for _, version := range []string{"2025-06-18", "2025-11-25"} {
			t.Run(name+" "+version, func(t *testing.T) {
				f := newFake()
				p := dial(t, f)
				p.forms(version)
				id := p.begin("tools/call", map[string]any{"name": "request_egress", "arguments": map[string]any{"domain": "api.example.com", "wait_seconds": 15}})
				params := p.elicited(tt.answer)
				if text, _ := params["message"].(string); !strings.Contains(text, "Open api.example.com") {
					t.Errorf("got form %v, want the question in it", params)
				}
				res, _ := p.answer(id)["result"].(map[string]any)
				if structured(res)["status"] != tt.status {
					t.Errorf("got %v, want %s", res, tt.status)
				}
				if n := len(f.decisions()); n != 1 && tt.status != "pending" || n > 1 {
					t.Errorf("got decisions %v, want one, or none for what is pending", f.decisions())
				}
				p.alive()
			})
		}
	}
}

// The person answers at a terminal while the form is with the client, or never.
func TestFormLegacyElsewhere(t *testing.T) {
	f := newFake()
	p := dial(t, f)
	p.forms("2025-06-18")
	id := p.begin("tools/call", map[string]any{"name": "request_egress", "arguments": map[string]any{"domain": "api.example.com", "wait_seconds": 15}})
	p.elicited(nil)
	f.terminal(false)
	res, _ := p.answer(id)["result"].(map[string]any)
	if structured(res)["status"] != "approved" {
		t.Errorf("got %v, want it approved", res)
	}
	p.alive()

	f = newFake()
	p = dial(t, f)
	p.forms("2025-06-18")
	id = p.begin("tools/call", map[string]any{"name": "request_egress", "arguments": map[string]any{"domain": "api.example.com", "wait_seconds": 0.1}})
	p.elicited(nil)
	res, _ = p.answer(id)["result"].(map[string]any)
	if structured(res)["status"] != "pending" {
		t.Errorf("got %v, want it pending", res)
	}
	if len(f.decisions()) != 0 {
		t.Errorf("got decisions %v, want none", f.decisions())
	}
	p.alive()
}

// A client that shows no forms is not asked to.
func TestNoForm(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	id := p.begin("tools/call", map[string]any{"name": "request_egress", "arguments": map[string]any{"domain": "api.example.com", "wait_seconds": 0.05}})
	if res, _ := p.answer(id)["result"].(map[string]any); structured(res)["status"] != "pending" {
		t.Errorf("got %v, want it pending", res)
	}
	for _, m := range p.notes {
		if m["method"] == "elicitation/create" {
			t.Errorf("got the form %v, want none", m)
		}
	}
}

// What a call names can only narrow, and no argument says that it may do more.
func TestAllowedDomainsNarrow(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	p.call("execute_code", map[string]any{"code": "x", "allowed_domains": []any{"a.example.com", "*.b.example.com"}})
	r := f.last(t)
	if d := cmp.Diff([]string{"a.example.com", "*.b.example.com"}, r.AllowedDomains); d != "" || r.GrantDomains || r.Hold != 0 {
		t.Errorf("got request %+v, want the two domains and no grant", r)
	}
	p.call("execute_code", map[string]any{"code": "x", "allowed_domains": []any{}})
	if r := f.last(t); r.AllowedDomains == nil || len(r.AllowedDomains) != 0 {
		t.Errorf("got %#v for an empty list, want an empty list", r.AllowedDomains)
	}
	p.call("execute_code", map[string]any{"code": "x"})
	if r := f.last(t); r.AllowedDomains != nil || r.Offline {
		t.Errorf("without a list: got %+v, want no domains and not offline", r)
	}
	for _, bad := range []string{`{"code":"x","allowed_domains":"a.example.com"}`, `{"code":"x","allowed_domains":[1]}`, `{"code":"x","grant_domains":true}`, `{"code":"x","hold":1}`} {
		p.fails(sandboxmcp.CodeInvalidArgument, "execute_code", nil2raw(bad))
	}
	p.good("sandbox_run_python", map[string]any{"code": "x"})
	if r := f.last(t); !r.Offline || !r.Session.Offline {
		t.Errorf("got %+v for the five tools, want no network", r)
	}
	f.config.Five.Network = true
	q := legacy(t, f)
	q.good("sandbox_run_python", map[string]any{"code": "x"})
	if r := f.last(t); r.Offline || r.Session.Offline {
		t.Errorf("got %+v with SANDBOX_NETWORK=approved, want a network", r)
	}
}
