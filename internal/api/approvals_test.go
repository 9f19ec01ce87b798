package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// TestACallerCannotAnswerItsOwnQuestions: a key that runs code decides nothing, on either
// listener. Its request reaches no verb.
func TestACallerCannotAnswerItsOwnQuestions(t *testing.T) {
	s := answering()
	decides := 0
	for _, r := range slices.Concat(api.RESTRoutes(), api.Routes()) {
		decision := strings.Contains(r.Pattern, "decisions") || strings.HasPrefix(r.Pattern, "DELETE") && (strings.HasSuffix(r.Pattern, "egress") || strings.HasSuffix(r.Pattern, "access") || strings.HasSuffix(r.Pattern, "approvals")) || r.Pattern == "POST /approvals/{id}"
		if decision != r.Operator {
			t.Errorf("%s: got for operators %v, want %v", r.Pattern, r.Operator, decision)
		}
		if !decision {
			continue
		}
		decides++
		method, target, body := example(r)
		h := rest(t, s, tenant)
		if strings.HasPrefix(target, "/v1/") {
			h = api.NewHandler(t.Context(), api.Config{Service: s, Logger: quiet()}, tenant)
		}
		for _, headers := range [][]string{nil, {"X-Tenant-Id", "other"}, {"X-Tenant-Id", "*"}} {
			w := send(t, h, method, target, body, headers...)
			if w.Code != http.StatusForbidden || codeOf(w) != sandboxmcp.CodeAccessDenied {
				t.Errorf("%s with %v: got %d %s, want %s", r.Pattern, headers, w.Code, w.Body, sandboxmcp.CodeAccessDenied)
			}
		}
	}
	if decides != 8 {
		t.Errorf("got %d routes that decide, want 8", decides)
	}
	if calls := s.take(); len(calls) != 0 {
		t.Errorf("got the calls %+v, want none", calls)
	}
}

// TestAnOperatorAnswersQuestionsOfEachKind: the decision reaches the verb of the question's kind,
// for all namespaces or for the one that is selected.
func TestAnOperatorAnswersQuestionsOfEachKind(t *testing.T) {
	verbs := map[string]string{"egress": "DecideEgress", "host": "DecideHostAccess", "package": "DecidePackage"}
	for kind, verb := range verbs {
		t.Run(kind, func(t *testing.T) {
			s := &service{questions: map[string]string{"egress": "e", "host": "h", "package": "p"}}
			id := kind[:1]
			w := send(t, rest(t, s, operator), "POST", "/approvals/"+id, `{"decision":"approve","scope":"duration","for_seconds":90,"sha256":"f00d"}`)
			if w.Code != http.StatusOK {
				t.Fatalf("got %d %s, want 200", w.Code, w.Body)
			}
			caller, in := received(t, s.take(), verb)
			want := sandboxmcp.AccessDecision{ID: id, Scope: sandboxmcp.GrantDuration, For: 90 * time.Second, SHA256: "f00d"}
			if d := diff(list(want), in); d != "" {
				t.Errorf("got another decision (-want +got):\n%s", d)
			}
			if want := (sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: operator.Actor}); caller != want {
				t.Errorf("got the caller %+v, want %+v", caller, want)
			}
			send(t, rest(t, s, operator), "POST", "/approvals/"+id, `{"decision":"deny"}`, "X-Tenant-Id", "own")
			caller, in = received(t, s.take(), verb)
			if d := diff(list(sandboxmcp.AccessDecision{ID: id, Deny: true}), in); d != "" || caller.Namespace != "own" {
				t.Errorf("a denial in one namespace: got %+v for %+v, want a denial for own", in, caller)
			}
		})
	}
	s := &service{questions: map[string]string{"egress": "e"}}
	if w := send(t, rest(t, s, operator), "POST", "/approvals/other", `{"decision":"approve"}`); codeOf(w) != sandboxmcp.CodeRequestNotFound || len(s.take()) != 0 {
		t.Errorf("a question that does not wait: got %d %s, want %s and no decision", w.Code, w.Body, sandboxmcp.CodeRequestNotFound)
	}
}

// TestQuestionsOfAllKindsAreListed: with their kind; a tenant sees its own namespace, an operator
// every one.
func TestQuestionsOfAllKindsAreListed(t *testing.T) {
	s := &service{questions: map[string]string{"egress": "e", "host": "h", "package": "p"}}
	w := send(t, rest(t, s, operator), "GET", "/approvals", "")
	var got struct {
		Total   int
		Pending []struct {
			Kind, Warning string
			ID            string `json:"approval_id"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, p := range got.Pending {
		kinds = append(kinds, p.Kind+" "+p.ID+" "+p.Warning)
	}
	if want := []string{"egress e ", "host h it is dangerous", "package p "}; !slices.Equal(kinds, want) || got.Total != 3 {
		t.Errorf("got %q of %d, want %q", kinds, got.Total, want)
	}
	for identity, want := range map[string]sandboxmcp.Namespace{"tenant": "team", "operator": sandboxmcp.EveryNamespace} {
		s, who := &service{}, map[string]sandboxmcp.Identity{"tenant": tenant, "operator": operator}[identity]
		send(t, rest(t, s, who), "GET", "/approvals", "")
		calls := s.take()
		if len(calls) != 3 {
			t.Errorf("%s: got the calls %+v, want those of three kinds", identity, calls)
		}
		for _, c := range calls {
			if c.caller.Namespace != want {
				t.Errorf("%s: got %s for %s, want %s", identity, c.verb, c.caller.Namespace, want)
			}
		}
	}
}

// TestQuestionsAreAskedAndGrantsAreWithdrawn: each reaches the verb of its kind, in the caller's
// namespace.
func TestQuestionsAreAskedAndGrantsAreWithdrawn(t *testing.T) {
	for _, c := range []struct {
		method, target, body, verb string
		want                       any
	}{
		{"POST", "/approvals", `{"domain":"a","port":8443,"reason":"r","session_id":"s","wait_seconds":1.5}`, "RequestEgress", sandboxmcp.EgressAsk{Domain: "a", Port: 8443, Reason: "r", SessionID: "s", Wait: 1500 * time.Millisecond}},
		{"POST", "/approvals", `{"pattern":"docker ps","reason":"r"}`, "RequestHostAccess", sandboxmcp.HostAsk{Pattern: "docker ps", Reason: "r"}},
		{"DELETE", "/approvals?domain=a", "", "RevokeEgress", "a"},
		{"DELETE", "/approvals?pattern=b", "", "RevokeHostAccess", "b"},
		{"DELETE", "/approvals?package=python:c", "", "RevokePackage", "python:c"},
	} {
		s := &service{}
		if w := send(t, rest(t, s, operator), c.method, c.target, c.body); w.Code != http.StatusOK {
			t.Errorf("%s %s: got %d %s, want 200", c.method, c.target, w.Code, w.Body)
		}
		caller, in := received(t, s.take(), c.verb)
		if d := diff(list(c.want), in); d != "" {
			t.Errorf("%s %s: got another input (-want +got):\n%s", c.method, c.target, d)
		}
		if want := (sandboxmcp.Caller{Namespace: "own", Actor: operator.Actor}); caller != want {
			t.Errorf("%s %s: got the caller %+v, want %+v", c.method, c.target, caller, want)
		}
	}
}

// TestAQuestionIsShownByItsID: with its kind and what became of it, to callers of its namespace and
// to operators.
func TestAQuestionIsShownByItsID(t *testing.T) {
	s := &service{questions: map[string]string{"egress": "e", "host": "h", "package": "p"}}
	for id, want := range map[string]string{"e": `"kind":"egress"`, "h": `"kind":"host"`, "p": `"kind":"package"`} {
		for _, who := range []sandboxmcp.Identity{tenant, operator} {
			w := send(t, rest(t, s, who), "GET", "/approvals/"+id, "")
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: got %d %s, want %s", id, w.Code, w.Body, want)
			}
			ns := who.Own()
			if who.Every {
				ns = sandboxmcp.EveryNamespace
			}
			for _, c := range s.take() {
				if c.caller.Namespace != ns {
					t.Errorf("%s: got %s for %s, want %s", id, c.verb, c.caller.Namespace, ns)
				}
			}
		}
	}
	refusing := &service{refuse: func(call) error { return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no approval") }}
	if w := send(t, rest(t, refusing, tenant), "GET", "/approvals/other", ""); w.Code != http.StatusNotFound || codeOf(w) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("an unknown one: got %d %s, want request_not_found", w.Code, w.Body)
	}
}
