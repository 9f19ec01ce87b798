package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// restClient calls REST of a real engine, and compares each answer with the OpenAPI document that
// the server gives.
type restClient struct {
	t         *testing.T
	url       string
	http      *http.Client
	responses map[string]*jsonschema.Resolved // by "METHOD /path" of the document, and "Error"
}

func restOf(t *testing.T, e *engine.Engine, identity sandboxmcp.Identity) *restClient {
	t.Helper()
	h := api.HTTP(t.Context(), api.HTTPConfig{
		Service: e, Logger: slog.New(slog.DiscardHandler), Version: "v0", Identify: func(*http.Request) (sandboxmcp.Identity, error) { return identity, nil },
	})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c := &restClient{t: t, url: s.URL, http: s.Client(), responses: map[string]*jsonschema.Resolved{}}
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct{ Schema *jsonschema.Schema }
			}
		}
		Components struct{ Schemas map[string]*jsonschema.Schema }
	}
	status, text := c.send("GET", "/openapi.json", "")
	if err := json.Unmarshal(text, &doc); err != nil || status != http.StatusOK {
		t.Fatalf("got %d and %v, want the document", status, err)
	}
	resolve := func(s *jsonschema.Schema) *jsonschema.Resolved {
		if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
			s = doc.Components.Schemas[name]
		}
		r, err := s.CloneSchemas().Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if s := op.Responses["200"].Content["application/json"].Schema; s != nil {
				c.responses[strings.ToUpper(method)+" "+path] = resolve(s)
			}
		}
	}
	c.responses["Error"] = resolve(doc.Components.Schemas["Error"])
	return c
}

func (c *restClient) send(method, path, body string) (int, []byte) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	res, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, text
}

// call calls a route, whose pattern names its schema, and returns the answer.
func (c *restClient) call(pattern, path, body string) map[string]any {
	c.t.Helper()
	method, documented, _ := strings.Cut(pattern, " ")
	if path == "" {
		path = documented
	}
	status, text := c.send(method, path, body)
	name := pattern
	if status != http.StatusOK {
		name = "Error"
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || c.responses[name] == nil {
		c.t.Fatalf("%s: got %d %s, want an answer in JSON that is documented", pattern, status, text)
	}
	if err := c.responses[name].Validate(got); err != nil {
		c.t.Errorf("%s: got an answer that its schema refuses: %v\n%s", pattern, err, text)
	}
	return got
}

// TestRealAnswersAreAsDocumented: each route answers for a real engine with what the OpenAPI
// document says: runs of each end, jobs, sessions, secrets, questions, the record and failures.
func TestRealAnswersAreAsDocumented(t *testing.T) {
	e, _ := openEngine(t)
	c := restOf(t, e, sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"default"}, Every: true, Actor: "http key 1"})
	for body, status := range map[string]string{
		`{"code":"echo hi > /mnt/data/a.txt; echo out","language":"shell"}`:          "completed",
		`{"code":"exit 3","language":"shell"}`:                                       "failed",
		`{"code":"kill -9 $$","language":"shell"}`:                                   "signalled",
		`{"code":"sleep 9","language":"shell","timeout_seconds":0.2}`:                "timed_out",
		`{"code":"echo in the session","language":"shell","session_id":"of-a-test"}`: "completed",
	} {
		if got := c.call("POST /execute", "", body); got["status"] != status {
			t.Errorf("%s: got %v, want %s", body, got, status)
		}
	}
	id, _ := c.call("POST /execute/async", "", `{"code":"sleep 20","language":"shell"}`)["job_id"].(string)
	if got := c.call("GET /jobs", "", ""); got["total"] != 1.0 {
		t.Errorf("jobs: got %v, want the one", got)
	}
	c.call("GET /execute/{id}/status", "/execute/"+id+"/status", "")
	if got := c.call("DELETE /jobs/{id}", "/jobs/"+id, ""); got["cancelled"] != true {
		t.Errorf("cancelling: got %v, want it cancelled", got)
	}
	ended := c.call("GET /execute/{id}/status", "/execute/"+id+"/status?wait_seconds=20", "")
	if ended["status"] != "cancelled" && ended["error"] != "cancelled" { // an error, if it did not run yet
		t.Errorf("the cancelled job: got %v, want cancelled", ended)
	}
	c.call("POST /sessions", "", `{"language":"shell","session_id":"second","ttl_minutes":1.5,"limits":{"max_processes":4}}`)
	if got := c.call("GET /sessions", "", ""); got["total"] != 2.0 {
		t.Errorf("sessions: got %v, want two", got)
	}
	c.call("DELETE /sessions/{id}", "/sessions/second", "")
	c.call("POST /vault", "", `{"key":"A_TOKEN","value":"a-long-secret"}`)
	c.call("GET /vault", "", "")
	c.call("DELETE /vault/{key}", "/vault/A_TOKEN", "")
	asked := c.call("POST /approvals", "", `{"domain":"a.example.com","reason":"of a test"}`)
	if got := c.call("GET /approvals", "", ""); got["total"] != 1.0 {
		t.Errorf("questions: got %v, want the one", got)
	}
	question, _ := asked["approval_id"].(string)
	if got := c.call("GET /approvals/{id}", "/approvals/"+question, ""); got["status"] != "pending" || got["kind"] != "egress" || got["domain"] != "a.example.com" {
		t.Errorf("the question: got %v, want it pending", got)
	}
	if got := c.call("POST /approvals/{id}", "/approvals/"+question, `{"decision":"approve","scope":"always"}`); got["approved"] != true {
		t.Errorf("the decision: got %v, want it approved", got)
	}
	if got := c.call("GET /approvals/{id}", "/approvals/"+question, ""); got["status"] != "approved" {
		t.Errorf("the answered question: got %v, want it approved", got)
	}
	stranger := restOf(t, e, sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"stranger"}, Actor: "test"})
	if got := stranger.call("GET /approvals/{id}", "/approvals/"+question, ""); got["error"] != "request_not_found" {
		t.Errorf("the question of another namespace: got %v, want request_not_found", got)
	}
	if got := c.call("DELETE /approvals", "/approvals?domain=a.example.com", ""); got["revoked"] != 1.0 {
		t.Errorf("revoking: got %v, want one grant", got)
	}
	for _, pattern := range []string{"GET /approvals", "GET /audit", "GET /runtimes", "GET /stats", "GET /health", "GET /healthz", "GET /readyz"} {
		c.call(pattern, "", "")
	}
	c.call("POST /validate", "", `{"code":"if","language":"shell"}`)
	for pattern, path := range map[string]string{
		"DELETE /jobs/{id}": "/jobs/none", "DELETE /sessions/{id}": "/sessions/none", "DELETE /vault/{key}": "/vault/NONE", "GET /execute/{id}/status": "/execute/none/status",
	} {
		if got := c.call(pattern, path, ""); got["error"] == nil {
			t.Errorf("%s: got %v, want an error", path, got)
		}
	}
	c.events()
}

// events compares an event of the stream with the fields of the contract.
func (c *restClient) events() {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/events?recent=true", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	res, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			c.t.Fatal(err)
		}
		for _, field := range []string{"id", "type", "namespace", "message", "data", "timestamp", "dropped"} {
			if _, ok := got[field]; !ok {
				c.t.Errorf("got the event %s, want the field %s", data, field)
			}
		}
		return
	}
	c.t.Error("got no event, want those that are kept")
}
