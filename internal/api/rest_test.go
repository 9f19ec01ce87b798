package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// Identities over HTTP.
var (
	tenant   = sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"team", "other"}, Actor: "http key 1"}
	operator = sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"own"}, Every: true, Actor: "http key 2"}
)

// rest returns the handler of the routes over HTTP for one identity.
func rest(t *testing.T, s sandboxmcp.Service, identity sandboxmcp.Identity) http.Handler {
	t.Helper()
	return api.HTTP(t.Context(), api.HTTPConfig{
		Service: s, Logger: quiet(), Version: "v1.2.3",
		Identify: func(*http.Request) (sandboxmcp.Identity, error) { return identity, nil },
	})
}

// send sends a request to a handler. Headers are pairs of name and value.
func send(t *testing.T, h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if path, _, _ := strings.Cut(target, "?"); strings.HasSuffix(path, "/events") {
		cancel() // or following would not end
	}
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// codeOf returns the code of an error body, or an empty text.
func codeOf(w *httptest.ResponseRecorder) sandboxmcp.Code {
	var body struct {
		Error any `json:"error"`
	}
	if json.Unmarshal(w.Body.Bytes(), &body) != nil {
		return "no JSON"
	}
	code, _ := body.Error.(string)
	return sandboxmcp.Code(code)
}

// example returns the target and the body that the documents show for a route.
func example(r api.RouteInfo) (method, target, body string) {
	method, target, _ = strings.Cut(r.Pattern, " ")
	target = wildcard.ReplaceAllString(target, "x")
	if json.Valid([]byte(r.Example)) {
		return method, target, r.Example
	}
	if r.Example != "" {
		target += "?" + r.Example
	}
	return method, target, ""
}

// answering is a fake that has a pending question of the id that example writes.
func answering() *service { return &service{questions: map[string]string{"egress": "x"}} }

func TestRESTPatternsAreDistinctAndDescribed(t *testing.T) {
	mux := http.NewServeMux()
	routes := api.RESTRoutes()
	if len(routes) < 25 {
		t.Errorf("got %d routes, want 25 at least: the table is not read", len(routes))
	}
	for _, r := range routes {
		if _, path, _ := strings.Cut(r.Pattern, " "); strings.HasPrefix(path, "/v") && path != "/vault" && path != "/vault/{key}" && path != "/validate" {
			t.Errorf("%s: got a path of a version, want none", r.Pattern)
		}
		if err := register(mux, r.Pattern); err != nil {
			t.Errorf("%s: got %v, want no other route for its requests", r.Pattern, err)
		}
		if !strings.HasSuffix(r.Doc, ".") {
			t.Errorf("%s: got the description %q, want a sentence", r.Pattern, r.Doc)
		}
	}
}

// TestRoutesOfTheSocketAreNotServedOverHTTP: these grant domains and decide, and one listener
// serves nothing of the other.
func TestRoutesOfTheSocketAreNotServedOverHTTP(t *testing.T) {
	s := answering()
	public, local := rest(t, s, operator), api.NewHandler(t.Context(), api.Config{Service: s, Logger: quiet()}, operator)
	for _, r := range append(api.Routes(), api.RouteInfo{Pattern: "GET /v1/hello"}, api.RouteInfo{Pattern: "POST /v1/stop"}) {
		method, target, body := example(r)
		if w := send(t, public, method, target, body); w.Code != http.StatusNotFound || codeOf(w) != sandboxmcp.CodeNotFound {
			t.Errorf("%s over HTTP: got %d %s, want %s", r.Pattern, w.Code, w.Body, sandboxmcp.CodeNotFound)
		}
	}
	for _, r := range api.RESTRoutes() {
		method, target, body := example(r)
		if w := send(t, local, method, target, body); w.Code != http.StatusNotFound {
			t.Errorf("%s on the socket: got %d %s, want 404", r.Pattern, w.Code, w.Body)
		}
	}
	if calls := s.take(); len(calls) != 0 {
		t.Errorf("got the calls %+v, want none", calls)
	}
}

// TestEveryRESTExampleIsAnswered: the requests of the documents work, and their answers are what
// the schemas say.
// TestCommandsOfRESTErrorsCanBePasted: a command in an error has the program and the state directory
// of the server, also that of the code's own hint.
func TestCommandsOfRESTErrorsCanBePasted(t *testing.T) {
	how := sandboxmcp.Invocation{Program: "/opt/x/sandboxmcp", StateDir: "/srv/state"}
	h := api.HTTP(t.Context(), api.HTTPConfig{
		Service: &service{refuse: func(call) error {
			return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no secret X; `sandboxmcp vault list` has all").WithHint("run `sandboxmcp vault add X`")
		}},
		Logger: quiet(), Identify: func(*http.Request) (sandboxmcp.Identity, error) { return operator, nil }, Invocation: how,
	})
	var body struct{ Message, Hint string }
	w := send(t, h, "DELETE", "/vault/X", "")
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(body.Message, how.Line("vault list")) || !strings.Contains(body.Hint, how.Line("vault add X")) {
		t.Errorf("got %+v, want the commands with the program and the state directory", body)
	}
}

func TestEveryRESTExampleIsAnswered(t *testing.T) {
	doc := document(t)
	for _, r := range api.RESTRoutes() {
		method, target, body := example(r)
		w := send(t, rest(t, answering(), operator), method, target, body)
		if w.Code != http.StatusOK {
			t.Errorf("%s: got %d %s, want 200", r.Pattern, w.Code, w.Body)
			continue
		}
		if r.Out == nil {
			continue
		}
		if err := doc.check(r.Pattern, w.Body.Bytes()); err != nil {
			t.Errorf("%s: got an answer that its schema refuses: %v\n%s", r.Pattern, err, w.Body)
		}
	}
}

// TestFailuresFitTheirSchema: the body of a failure is what the document says.
func TestFailuresFitTheirSchema(t *testing.T) {
	doc := document(t)
	refusing := &service{refuse: func(call) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "it is full").With("place", 3).With("retry_after_seconds", 7)
	}}
	w := send(t, rest(t, refusing, tenant), "POST", "/execute", `{"code":"x"}`)
	if err := doc.checkSchema("Error", w.Body.Bytes()); err != nil {
		t.Errorf("got a failure that the schema Error refuses: %v\n%s", err, w.Body)
	}
	if got := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || got != "7" {
		t.Errorf("got %d and Retry-After %q, want 429 and 7", w.Code, got)
	}
	if err := doc.checkSchema("Error", []byte(`{"error":"no_code","message":"","hint":""}`)); err == nil {
		t.Error("an unknown code: got no fault of the schema, want one")
	}
	busy := &service{refuse: func(call) error { return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "it is busy") }}
	if got := send(t, rest(t, busy, tenant), "POST", "/execute", `{"code":"x"}`).Header().Get("Retry-After"); got != "1" {
		t.Errorf("an error that may pass: got Retry-After %q, want 1", got)
	}
	denied := &service{refuse: func(call) error { return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "no") }}
	if got := send(t, rest(t, denied, tenant), "POST", "/execute", `{"code":"x"}`).Header().Get("Retry-After"); got != "" {
		t.Errorf("an error that stays: got Retry-After %q, want none", got)
	}
}

// TestRESTRunsCarryTheirInput: every field of a body reaches the run, and none opens anything.
func TestRESTRunsCarryTheirInput(t *testing.T) {
	body := `{"code":"c","language":"node","allowed_domains":[],"timeout_seconds":1.5,"session_id":"s","packages":["six"],"stdin":"in","env":{"A":"b"},
		"max_ram_mb":1,"max_cpu_cores":0.5,"max_processes":2,"max_output_bytes":3,"backend":"process"}`
	want := sandboxmcp.Request{
		Code: "c", Language: "node", AllowedDomains: []string{}, SessionID: "s", Packages: []string{"six"}, Stdin: []byte("in"), Env: map[string]string{"A": "b"}, Backend: "process",
		Limits: sandboxmcp.Limits{MaxRAMMB: 1, MaxCPUCores: 0.5, TimeoutSeconds: 1.5, MaxProcesses: 2, MaxOutputBytes: 3}, Display: sandboxmcp.DisplayResults, Reader: sandboxmcp.ReaderREST,
	}
	for path, verb := range map[string]string{"/execute": "Execute", "/execute/async": "Start"} {
		s := &service{}
		if w := send(t, rest(t, s, tenant), "POST", path, body); w.Code != http.StatusOK {
			t.Fatalf("%s: got %d %s, want 200", path, w.Code, w.Body)
		}
		caller, in := received(t, s.take(), verb)
		if d := diff(list(want), in); d != "" {
			t.Errorf("%s: got another request (-want +got):\n%s", path, d)
		}
		if want := (sandboxmcp.Caller{Namespace: "team", Actor: "http key 1", Holder: "http key 1"}); caller != want {
			t.Errorf("%s: got the caller %+v, want %+v", path, caller, want)
		}
	}
	s := &service{}
	send(t, rest(t, s, tenant), "POST", "/execute", `{"code":"c","timeout_seconds":null}`)
	if _, in := received(t, s.take(), "Execute"); diff(list(sandboxmcp.Request{Code: "c", Display: sandboxmcp.DisplayStdout, Reader: sandboxmcp.ReaderREST}), in) != "" {
		t.Errorf("a run without a session: got %+v, want open domains and the value on stdout", in)
	}
}

// TestRESTInputIsChecked: what no route has is refused, with its name, and reaches no verb.
func TestRESTInputIsChecked(t *testing.T) {
	const bad, denied = sandboxmcp.CodeInvalidArgument, sandboxmcp.CodeAccessDenied
	for _, c := range []struct {
		method, target, body string
		code                 sandboxmcp.Code
		text                 string
	}{
		{"POST", "/execute", `{`, bad, "not a JSON object"},
		{"POST", "/execute", `[]`, bad, "not a JSON object"},
		{"POST", "/execute", `null`, bad, "not a JSON object"},
		{"POST", "/execute", `{"code":"x"} {}`, bad, "not a JSON object"},
		{"POST", "/execute", "{\"code\":\"\xff\"}", bad, "UTF-8"},
		{"POST", "/execute", `{"code":"1","code":"2"}`, bad, `\"code\" occurs twice`},
		{"POST", "/execute", `{"code":"1","env":{"A":"1","\u0041":"2"}}`, bad, `\"A\" occurs twice`},
		{"POST", "/execute", ``, bad, "code is missing"},
		{"POST", "/execute", `{}`, bad, "code is missing"},
		{"POST", "/execute", `{"code":null}`, bad, "code is missing"},
		{"POST", "/execute", `{"Code":"x"}`, bad, `\"Code\" is not known`},
		{"POST", "/execute", `{"code":"x","colour":2}`, bad, `\"colour\" is not known`},
		{"POST", "/execute", `{"code":"x","grant_domains":true}`, bad, "grant_domains"},
		{"POST", "/execute", `{"code":"x","namespace":"other"}`, denied, "names another"},
		{"POST", "/execute", `{"code":"x","namespace":5}`, bad, "namespace is 5"},
		{"POST", "/execute", `{"code":"x","env":{},"Namespace":"own"}`, bad, `\"Namespace\" is not known`},
		{"POST", "/vault", `{"key":"K","value":"12345678","namespace":"other"}`, denied, "names another"},
		{"POST", "/sessions", `{"limits":{"namespace":"own"}}`, bad, "limits.namespace"},
		{"POST", "/execute", `{"code":5}`, bad, "code is 5; it has to be a text"},
		{"POST", "/execute", `{"code":"x","timeout_seconds":0}`, bad, "timeout_seconds is 0; it has to be above 0"},
		{"POST", "/execute", `{"code":"x","timeout_seconds":"5"}`, bad, "a number"},
		{"POST", "/execute", `{"code":"x","max_ram_mb":1.5}`, bad, "a whole number"},
		{"POST", "/execute", `{"code":"x","max_ram_mb":-1}`, bad, "at least 1"},
		{"POST", "/execute", `{"code":"x","packages":"six"}`, bad, "a list of texts"},
		{"POST", "/execute", `{"code":"x","env":{"A":1}}`, bad, `env[\"A\"] is 1; it has to be a text`},
		{"POST", "/execute", `{"code":"x","env":{"A":null}}`, bad, `env[\"A\"] is null; it has to be a text`},
		{"POST", "/execute", `{"code":"x","env":[]}`, bad, "env is a list; it has to be an object with texts"},
		{"POST", "/execute", `{"code":"x","packages":["six",null]}`, bad, "packages[1] is null; it has to be a text"},
		{"POST", "/execute", `{"code":"x","allowed_domains":"a.example"}`, bad, "allowed_domains is a text; it has to be a list of texts"},
		{"POST", "/execute", `{"code":"x","max_ram_mb":1e30}`, bad, "max_ram_mb is 1e30; it has to be a whole number"},
		{"POST", "/execute", `{"code":"x","language":""}`, bad, "language is empty"},
		{"POST", "/execute", `{"code":"x","backend":""}`, bad, "backend is empty"},
		{"POST", "/execute", `{"code":"x","session_id":""}`, sandboxmcp.CodeInvalidSessionID, "session id"},
		{"POST", "/sessions", `{"session_id":""}`, sandboxmcp.CodeInvalidSessionID, "session id"},
		{"POST", "/validate", `{"code":"x","auto_fix":1}`, bad, "auto_fix is 1; it has to be true or false"},
		{"POST", "/execute", `{"code":"x","session_id":"a b"}`, sandboxmcp.CodeInvalidSessionID, "a b"},
		{"POST", "/execute?namespace=other", `{"code":"x"}`, denied, "names another"},
		{"POST", "/sessions", `{"limits":{"max_ram_mb":0}}`, bad, "limits.max_ram_mb is 0"},
		{"POST", "/sessions", `{"limits":5}`, bad, "limits has to be an object"},
		{"POST", "/sessions", `{"ttl_minutes":10081}`, bad, "at most 10080"},
		{"POST", "/sessions", `{"timeout_seconds":1,"limits":{"timeout_seconds":2}}`, bad, "give one"},
		{"GET", "/audit?limit=many", ``, bad, `limit is \"many\"; it has to be a whole number`},
		{"GET", "/audit?limit=0", ``, bad, "limit is 0; it has to be at least 1"},
		{"GET", "/audit?since=yesterday", ``, bad, "such as 2026-01-31T09:00:00Z"},
		{"GET", "/audit?limit=1&limit=2", ``, bad, "2 times"},
		{"GET", "/audit?action=execute;limit=1", ``, bad, "the query cannot be read"},
		{"GET", "/audit?action=%zz", ``, bad, "the query cannot be read"},
		{"GET", "/audit?namespace=other", ``, denied, "names another"},
		{"GET", "/audit?namespace=default&namespace=other", ``, bad, "2 times"},
		{"GET", "/stats?namespace=other", ``, denied, "names another"},
		{"GET", "/events?namespace=other", ``, denied, "names another"},
		{"GET", "/execute/a%20b/status", ``, sandboxmcp.CodeRequestNotFound, "a b"},
		{"GET", "/execute/a/status?wait_seconds=46", ``, bad, "at most 45"},
		{"DELETE", "/sessions/a%20b", ``, sandboxmcp.CodeInvalidSessionID, "a b"},
		{"POST", "/approvals", `{"reason":"r"}`, bad, "domain or pattern"},
		{"POST", "/approvals", `{"domain":"a","pattern":"b"}`, bad, "domain or pattern"},
		{"POST", "/approvals", `{"domain":"a","wait_seconds":46}`, bad, "at most 45"},
		{"POST", "/approvals", `{"pattern":"a","port":1}`, bad, "port"},
		{"POST", "/approvals/x", `{"decision":"maybe"}`, bad, "approve, deny"},
		{"DELETE", "/approvals", ``, bad, "one of domain"},
		{"DELETE", "/approvals?domain=a&package=b", ``, bad, "one of domain"},
	} {
		s := &service{}
		w := send(t, rest(t, s, operator), c.method, c.target, c.body)
		if codeOf(w) != c.code || w.Code != c.code.Row().HTTP || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s %s %s: got %d %s, want %s with %q", c.method, c.target, c.body, w.Code, w.Body, c.code, c.text)
		}
		if calls := s.take(); len(calls) != 0 {
			t.Errorf("%s %s %s: got the calls %+v, want none", c.method, c.target, c.body, calls)
		}
	}
}

// TestRESTTakesTheNameOfTheCallersNamespace: clients of the Python project may send it, in the query
// or in the body. It changes nothing.
func TestRESTTakesTheNameOfTheCallersNamespace(t *testing.T) {
	for _, c := range []struct{ method, target, body string }{
		{"POST", "/execute", `{"code":"x"%s}`},
		{"POST", "/install", `{"language":"python","packages":["six"]%s}`},
		{"POST", "/sessions", `{"language":"node"%s}`},
		{"POST", "/vault", `{"key":"K","value":"12345678"%s}`},
		{"GET", "/audit", ``},
		{"GET", "/stats", ``},
		{"DELETE", "/vault/K", ``},
	} {
		s := &service{}
		plain := send(t, rest(t, s, tenant), c.method, c.target, strings.Replace(c.body, "%s", "", 1))
		want := s.take()
		for _, name := range []string{"default", string(tenant.Own()), ""} {
			for _, inQuery := range []bool{true, false} {
				target, body := c.target, strings.Replace(c.body, "%s", "", 1)
				switch {
				case inQuery:
					target += "?namespace=" + name
				case body == "":
					continue
				default:
					body = strings.Replace(c.body, "%s", `,"namespace":"`+name+`"`, 1)
				}
				w := send(t, rest(t, s, tenant), c.method, target, body)
				if got := s.take(); w.Code != plain.Code || !reflect.DeepEqual(got, want) || len(want) == 0 {
					t.Errorf("%s %s %s: got %d %s and the calls %+v, want %d and %+v", c.method, target, body, w.Code, w.Body, got, plain.Code, want)
				}
			}
		}
	}
}

// TestWrongMethodsAndPathsAreToldApart: 405 with Allow, or 404.
func TestWrongMethodsAndPathsAreToldApart(t *testing.T) {
	h := rest(t, &service{}, tenant)
	for _, c := range []struct {
		method, target string
		status         int
		allow          string
	}{
		{"GET", "/execute", 405, "POST"},
		{"DELETE", "/stats", 405, "GET"},
		{"PUT", "/sessions", 405, "POST, GET"},
		{"PATCH", "/jobs/x", 405, "DELETE"},
		{"GET", "/no/such/route", 404, ""},
		{"GET", "/execute/x", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/v2/sessions", 404, ""},
	} {
		w := send(t, h, c.method, c.target, "")
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || codeOf(w) == "" {
			t.Errorf("%s %s: got %d, Allow %q and %s; want %d and %q", c.method, c.target, w.Code, w.Header().Get("Allow"), w.Body, c.status, c.allow)
		}
	}
}

// TestLargeBodiesAreNotRead: a body that says that it is too long is refused unread.
func TestLargeBodiesAreNotRead(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/execute", unreadable{})
	r.ContentLength = 1 << 40
	w := httptest.NewRecorder()
	rest(t, &service{}, tenant).ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || codeOf(w) != sandboxmcp.CodeUploadTooLarge || w.Header().Get("Connection") != "close" {
		t.Errorf("got %d %s, want %s and the end of the connection", w.Code, w.Body, sandboxmcp.CodeUploadTooLarge)
	}
	r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/install", strings.NewReader(`{"language":"`+strings.Repeat("x", 65<<10)+`"}`))
	r.ContentLength = -1
	w = httptest.NewRecorder()
	rest(t, &service{}, tenant).ServeHTTP(w, r)
	if codeOf(w) != sandboxmcp.CodeUploadTooLarge {
		t.Errorf("a body without a length: got %d %s, want %s", w.Code, w.Body, sandboxmcp.CodeUploadTooLarge)
	}
}

// unreadable is a body that nobody may read.
type unreadable struct{}

func (unreadable) Read([]byte) (int, error) { panic("the body was read") }

// TestSecretsAreNotRepeated: the value of a secret reaches the vault, and no answer.
func TestSecretsAreNotRepeated(t *testing.T) {
	const value = "a-value-that-is-secret"
	s := &service{}
	w := send(t, rest(t, s, tenant), "POST", "/vault", `{"key":"K","value":"`+value+`","ttl_seconds":1.5}`)
	_, in := received(t, s.take(), "AddSecret")
	want := sandboxmcp.SecretSpec{Key: "K", Value: sandboxmcp.NewSecret(value), TTL: 1500 * time.Millisecond}
	if d := diff(list(want), in); d != "" {
		t.Errorf("got another secret (-want +got):\n%s", d)
	}
	if got := strings.TrimSpace(w.Body.String()); got != `{"added":"K"}` {
		t.Errorf("got %s, want the key alone", got)
	}
	for _, body := range []string{`{"key":"K","` + value + `":1}`, `{"key":["` + value + `"],"value":"x"}`, `{"key":"K","value":"` + value, `{"key":"K","value":"` + value + `","ttl_seconds":-1}`} {
		w := send(t, rest(t, s, tenant), "POST", "/vault", body)
		if codeOf(w) != sandboxmcp.CodeInvalidArgument || strings.Contains(w.Body.String(), value) {
			t.Errorf("got %d %s, want %s without the value", w.Code, w.Body, sandboxmcp.CodeInvalidArgument)
		}
	}
}

// TestALongTimeIsNotAShortOne: a number of seconds that no duration can hold means the longest.
func TestALongTimeIsNotAShortOne(t *testing.T) {
	for _, n := range []string{"9223372037", "1e10", "1e300"} {
		s := &service{}
		send(t, rest(t, s, tenant), "POST", "/vault", `{"key":"K","value":"12345678","ttl_seconds":`+n+`}`)
		_, in := received(t, s.take(), "AddSecret")
		want := sandboxmcp.SecretSpec{Key: "K", Value: sandboxmcp.NewSecret("12345678"), TTL: math.MaxInt64}
		if d := diff(list(want), in); d != "" {
			t.Errorf("%s: got another secret (-want +got):\n%s", n, d)
		}
	}
}

// TestEmptyAnswersHaveNoNulls: an empty list is [], and an empty map is {}, in every answer.
func TestEmptyAnswersHaveNoNulls(t *testing.T) {
	for _, r := range api.RESTRoutes() {
		if r.Out == nil || r.Out.Kind() != reflect.Struct {
			continue
		}
		s, err := api.SchemaOf(r.Out)
		if err != nil {
			t.Fatal(err)
		}
		empty := reflect.New(r.Out).Elem()
		for _, f := range reflect.VisibleFields(r.Out) { // these have closed lists
			switch v := empty.FieldByIndex(f.Index); v.Interface().(type) {
			case sandboxmcp.Status:
				v.SetString(string(sandboxmcp.StatusCompleted))
			case sandboxmcp.JobStatus:
				v.SetString(string(sandboxmcp.JobQueued))
			}
		}
		if err := fits(s, api.WithoutNulls(empty.Interface())); err != nil {
			t.Errorf("%s: got an empty answer that its schema refuses: %v", r.Pattern, err)
		}
	}
}

// TestWithoutNullsSharesNothing: the value that a service returned stays as it was.
func TestWithoutNullsSharesNothing(t *testing.T) {
	type inner struct{ List []string }
	type outer struct {
		Inner []inner
		To    *inner
		Map   map[string]int
		Raw   json.RawMessage
		Bytes []byte
	}
	in := outer{Inner: []inner{{}}, To: &inner{}}
	got := api.WithoutNulls(in)
	want := outer{Inner: []inner{{List: []string{}}}, To: &inner{List: []string{}}, Map: map[string]int{}, Bytes: []byte{}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if in.Inner[0].List != nil || in.To.List != nil || in.Map != nil {
		t.Errorf("got a changed input %+v, want it as it was", in)
	}
}

// TestAPanicIsAnInternalError: it is answered, and its text stays in the server.
func TestAPanicIsAnInternalError(t *testing.T) {
	s := &service{refuse: func(call) error { panic("a hidden cause") }}
	w := send(t, rest(t, s, tenant), "GET", "/sessions", "")
	if w.Code != http.StatusInternalServerError || codeOf(w) != sandboxmcp.CodeInternal || strings.Contains(w.Body.String(), "hidden") {
		t.Errorf("got %d %s, want internal without the cause", w.Code, w.Body)
	}
}

// TestRequestsWithoutIdentityAreRefused: all but the checks of health.
func TestRequestsWithoutIdentityAreRefused(t *testing.T) {
	s := &service{}
	h := api.HTTP(t.Context(), api.HTTPConfig{Service: s, Logger: quiet(), Identify: func(*http.Request) (sandboxmcp.Identity, error) {
		return sandboxmcp.Identity{}, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "there is no key")
	}})
	for _, r := range api.RESTRoutes() {
		method, target, body := example(r)
		request := httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)
		if got := api.Open(request); got != r.Open {
			t.Errorf("%s: got open %v, want %v", r.Pattern, got, r.Open)
		}
		w := send(t, h, method, target, body)
		if want := http.StatusUnauthorized; !r.Open && w.Code != want {
			t.Errorf("%s: got %d %s, want %d", r.Pattern, w.Code, w.Body, want)
		}
		if r.Open != (r.Pattern == "GET /healthz" || r.Pattern == "GET /readyz") {
			t.Errorf("%s: got open %v, want only the checks of health to be", r.Pattern, r.Open)
		}
	}
	for _, c := range s.take() {
		if c.verb != "Runtimes" {
			t.Errorf("got the call %+v, want none", c)
		}
	}
}

// TestJobsHaveStates: a job is queued, then runs, then has a result; its error is an error.
func TestJobsHaveStates(t *testing.T) {
	running := sandboxmcp.Result{RequestID: "j", Status: sandboxmcp.StatusRunning, Stdout: "so far", Metadata: map[string]any{}}
	queued := running
	queued.Stdout, queued.Metadata = "", map[string]any{"queue_place": 2}
	ended := sandboxmcp.Result{RequestID: "j", Status: sandboxmcp.StatusFailed, ExitCode: 3}
	for name, c := range map[string]struct {
		is   sandboxmcp.Result
		want map[string]any
	}{
		"Queued":  {queued, map[string]any{"job_id": "j", "status": "queued", "queue_place": 2.0, "result": nil}},
		"Running": {running, map[string]any{"job_id": "j", "status": "running", "stdout": "so far", "result": nil}},
		"Ended":   {ended, map[string]any{"job_id": "j", "status": "failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{lookup: func(sandboxmcp.Lookup) (sandboxmcp.Result, error) { return c.is, nil }}
			w := send(t, rest(t, s, tenant), "GET", "/execute/j/status", "")
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if name == "Ended" {
				if r, ok := got["result"].(map[string]any); !ok || r["exit_code"] != 3.0 {
					t.Errorf("got %s, want the result", w.Body)
				}
				delete(got, "result")
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	s := &service{lookup: func(sandboxmcp.Lookup) (sandboxmcp.Result, error) { return sandboxmcp.Result{}, errors.New("a fault") }}
	if w := send(t, rest(t, s, tenant), "GET", "/execute/j/status", ""); codeOf(w) != sandboxmcp.CodeInternal {
		t.Errorf("a job that ended in an error: got %s, want that error", w.Body)
	}
}

// TestArtifactsHaveLinks: a file without a URL gets the one that the listener makes.
func TestArtifactsHaveLinks(t *testing.T) {
	result := sandboxmcp.Result{RequestID: "r", Namespace: "team", Artifacts: []sandboxmcp.Artifact{{Name: "a.png", SizeBytes: 5}, {Name: "none"}}}
	s := &service{
		run:    func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return result, nil },
		lookup: func(sandboxmcp.Lookup) (sandboxmcp.Result, error) { return result, nil },
	}
	h := api.HTTP(t.Context(), api.HTTPConfig{
		Service: s, Logger: quiet(), Identify: func(*http.Request) (sandboxmcp.Identity, error) { return tenant, nil },
		Link: func(ns sandboxmcp.Namespace, id, path string, size int64) string {
			if path == "none" {
				return ""
			}
			return "http://x/" + string(ns) + "/" + id + "/" + path
		},
	})
	for _, w := range []*httptest.ResponseRecorder{send(t, h, "POST", "/execute", `{"code":"x"}`), send(t, h, "GET", "/execute/r/status", "")} {
		if got := w.Body.String(); !strings.Contains(got, `"download_url":"http://x/team/r/a.png"`) || !strings.Contains(got, `"download_url":null`) {
			t.Errorf("got %s, want a URL for a.png and none for the other", got)
		}
	}
	if result.Artifacts[0].DownloadURL != nil {
		t.Error("got a URL in the result of the service, want it as it was")
	}
}

// TestARunEndsWithItsConnection: a client that goes away cancels its run, and no other.
func TestARunEndsWithItsConnection(t *testing.T) {
	running, ended := make(chan struct{}), make(chan error, 1)
	s := &service{run: func(ctx context.Context, _ sandboxmcp.Request) (sandboxmcp.Result, error) {
		close(running)
		<-ctx.Done()
		ended <- ctx.Err()
		return sandboxmcp.Result{}, ctx.Err()
	}}
	server := httptest.NewServer(rest(t, s, tenant))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/execute", strings.NewReader(`{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-running; cancel() }()
	if res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("got status %d, want the client to have gone", res.StatusCode)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the run cancelled", err)
	}
	for _, c := range s.take() {
		if c.verb == "Cancel" {
			t.Errorf("got the call %+v, want no other run to be cancelled", c)
		}
	}
}
