package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// pumped returns the ids and types of what a follower gets of events.
func pumped(last string, ids ...string) []string {
	events := make(chan sandboxmcp.Event, len(ids))
	for _, id := range ids {
		events <- sandboxmcp.Event{ID: id, Type: sandboxmcp.EventExecutionStarted}
	}
	close(events)
	w := httptest.NewRecorder()
	api.Pump(w, events, last, time.Hour)
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSpace(line)
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			got = append(got, id)
		}
		if line == "event: gap" {
			got = append(got, "gap")
		}
	}
	return got
}

// TestReturningFollowersMissNothingUntold: a follower that connects again gets what came after its
// last event, or is told of a gap.
func TestReturningFollowersMissNothingUntold(t *testing.T) {
	for name, c := range map[string]struct {
		last string
		kept []string
		want []string
	}{
		"First":                {"", []string{"m-1", "m-2"}, []string{"m-1", "m-2"}},
		"Kept":                 {"m-2", []string{"m-1", "m-2", "m-3", "m-4"}, []string{"m-3", "m-4"}},
		"Next":                 {"m-2", []string{"m-3"}, []string{"m-3"}},
		"OfOthersBetween":      {"m-2", []string{"m-1", "m-5"}, []string{"m-5"}},
		"Lost":                 {"m-2", []string{"m-9", "m-10"}, []string{"gap", "m-9", "m-10"}},
		"AnotherServer":        {"m-2", []string{"n-1", "n-2", "n-3"}, []string{"gap", "n-1", "n-2", "n-3"}},
		"AnotherServerCounted": {"m-2", []string{"n-3"}, []string{"gap", "n-3"}},
		"NoID":                 {"what", []string{"m-1"}, []string{"gap", "m-1"}},
		"HugeNumber":           {"m-99999999999999999999999", []string{"n-1"}, []string{"gap", "n-1"}},
		"Nothing":              {"m-2", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, pumped(c.last, c.kept...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestQuietStreamsHaveABeat: a comment shows both ends that the connection lives.
func TestQuietStreamsHaveABeat(t *testing.T) {
	events := make(chan sandboxmcp.Event)
	w := &firstWrite{ResponseRecorder: httptest.NewRecorder(), wrote: make(chan string, 1)}
	done := make(chan struct{})
	go func() { api.Pump(w, events, "", time.Millisecond); close(done) }()
	if got := <-w.wrote; got != ":\n\n" {
		t.Errorf("got %q, want a comment", got)
	}
	close(events)
	<-done
}

// firstWrite passes on the first write.
type firstWrite struct {
	*httptest.ResponseRecorder
	wrote chan string
}

func (w *firstWrite) Write(p []byte) (int, error) {
	select {
	case w.wrote <- string(p):
	default:
	}
	return len(p), nil
}

// TestEventsAreStreamedOverHTTP: with id and all fields, in the caller's namespace.
func TestEventsAreStreamedOverHTTP(t *testing.T) {
	s := &service{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(rest(t, s, tenant))
	defer server.Close()
	res := followed(ctx, t, server.URL, "m-1")
	defer func() { _ = res.Body.Close() }()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("got %s, want text/event-stream", got)
	}
	testkit.Until(t, "it follows", func() bool { return len(s.following()) == 1 })
	caller, in := received(t, s.take(), "Follow")
	if caller.Namespace != "team" || diff(list(true), in) != "" {
		t.Errorf("got %v for %s, want kept events for team", in, caller.Namespace)
	}
	s.following()[0].tell(occurrence(2))
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && lines.Text() != "id: m-2" {
		continue // over the kept events
	}
	lines.Scan()
	kind := lines.Text()
	lines.Scan()
	if data := lines.Text(); kind != "event: message" || !strings.HasPrefix(data, "data: {") || !strings.Contains(data, `"type":"execution.started"`) {
		t.Errorf("got %q and %q, want a message with the event", kind, data)
	}
}

// followed opens a stream of events.
func followed(ctx context.Context, t *testing.T, url, last string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestAReconnectStormTakesNoPlaceOfOthers: a caller that connects without end is refused, with
// Retry-After, while another one follows. Places are given back.
func TestAReconnectStormTakesNoPlaceOfOthers(t *testing.T) {
	s := &service{}
	h := api.HTTP(t.Context(), api.HTTPConfig{Service: s, Logger: quiet(), Identify: func(r *http.Request) (sandboxmcp.Identity, error) {
		return sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"team"}, Actor: r.Header.Get("Last-Event-ID")}, nil
	}})
	server := httptest.NewServer(h)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range 3 * api.MaxFollowEach {
		res := followed(ctx, t, server.URL, "storm")
		want := http.StatusOK
		if n >= api.MaxFollowEach {
			want = http.StatusTooManyRequests
		}
		if res.StatusCode != want || (want != http.StatusOK) != (res.Header.Get("Retry-After") != "") {
			t.Fatalf("follower %d: got %d and Retry-After %q, want %d", n, res.StatusCode, res.Header.Get("Retry-After"), want)
		}
		if want != http.StatusOK {
			_ = res.Body.Close()
		}
	}
	other := followed(ctx, t, server.URL, "other")
	defer func() { _ = other.Body.Close() }()
	if other.StatusCode != http.StatusOK {
		t.Errorf("another caller: got %d, want 200", other.StatusCode)
	}
	cancel()
	testkit.Until(t, "the places are free", func() bool { return len(s.following()) == 0 })
	testkit.Until(t, "the storm may follow again", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res := followed(ctx, t, server.URL, "storm")
		defer func() { _ = res.Body.Close() }()
		return res.StatusCode == http.StatusOK
	})
}

// sampleLine is a sample in the text format of Prometheus.
var sampleLine = regexp.MustCompile(`^sandboxmcp_[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"\})? [-+0-9.eE]+$`)

// TestMetricsHaveTheTextFormat: each sample follows the help and the type of its metric.
func TestMetricsHaveTheTextFormat(t *testing.T) {
	w := send(t, rest(t, &service{}, tenant), "GET", "/metrics", "")
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("got %s, want the text format", got)
	}
	name, samples := "", 0
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "# HELP "):
			name = strings.Fields(line)[2]
		case strings.HasPrefix(line, "# TYPE "):
			if f := strings.Fields(line); len(f) != 4 || f[2] != name || f[3] != "counter" && f[3] != "gauge" {
				t.Errorf("got %q, want the type of %s", line, name)
			}
		default:
			samples++
			if !sampleLine.MatchString(line) || !strings.HasPrefix(line, name) {
				t.Errorf("got %q, want a sample of %s", line, name)
			}
		}
	}
	if samples < 12 {
		t.Errorf("got %d samples, want 12 at least:\n%s", samples, w.Body)
	}
	st := filled[sandboxmcp.Stats]()
	for _, want := range []string{
		`sandboxmcp_build_info{version="v1.2.3"} 1`,
		fmt.Sprintf("sandboxmcp_queue_waiting %d", st.Queue.Queued),
		fmt.Sprintf(`sandboxmcp_executions_total{status="completed"} %d`, st.Executions[sandboxmcp.StatusCompleted]),
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("got no %q, want it in:\n%s", want, w.Body)
		}
	}
}

// unsigned is a server whose record has a fault.
type unsigned struct{ *service }

func (unsigned) Stats(context.Context) (sandboxmcp.Stats, error) {
	since := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	return sandboxmcp.Stats{Record: &sandboxmcp.AuditSigning{Reason: "row 7 is odd", Since: &since}}, nil
}

// TestHealthTellsOfAnUnsignedRecord: monitors hear of it, and the server still counts as ready, because programs
// still run.
func TestHealthTellsOfAnUnsignedRecord(t *testing.T) {
	sound, odd := rest(t, &service{}, tenant), rest(t, unsigned{&service{}}, tenant)
	const fault = `"record":{"signed":false,"reason":"row 7 is odd","since":"2031-02-03T04:05:06Z"}`
	for _, c := range []struct {
		h          http.Handler
		path, want string
	}{
		{odd, "/health", `"status":"ok"`},
		{odd, "/health", fault},
		{odd, "/stats", fault},
		{odd, "/metrics", "sandboxmcp_audit_signed 0\n"},
		{odd, "/readyz", `"status":"ok"`},
		{sound, "/health", `"record":{"signed":true`},
		{sound, "/metrics", "sandboxmcp_audit_signed 1\n"},
	} {
		w := send(t, c.h, "GET", c.path, "")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: got %d %s, want 200 and %q in it", c.path, w.Code, w.Body, c.want)
		}
	}
}

// silent is a service whose database does not answer.
type silent struct{ *service }

func (silent) Answers(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "it does not answer")
}

// TestReadyMeansThatProgramsCanRun: a server that ends or has no backend is not ready, and the
// backends are not asked for each of many requests, also not of clients that leave before the answer.
func TestReadyMeansThatProgramsCanRun(t *testing.T) {
	s := &service{}
	h := rest(t, s, sandboxmcp.Identity{})
	for range 20 {
		if w := send(t, h, "GET", "/readyz", ""); w.Code != http.StatusOK {
			t.Fatalf("got %d %s, want 200", w.Code, w.Body)
		}
	}
	if calls := s.take(); len(calls) != 1 {
		t.Errorf("got %d calls of the service, want 1", len(calls))
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	h = rest(t, s, sandboxmcp.Identity{})
	for range 20 { // clients that leave before the answer
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/readyz", nil))
	}
	if w := send(t, h, "GET", "/readyz", ""); w.Code != http.StatusOK {
		t.Errorf("after clients that left: got %d %s, want 200", w.Code, w.Body)
	}
	if calls := s.take(); len(calls) != 1 {
		t.Errorf("clients that left: got %d calls of the service, want 1", len(calls))
	}
	broken := &service{refuse: func(call) error { return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "none") }}
	if w := send(t, rest(t, broken, tenant), "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a backend: got %d %s, want 503", w.Code, w.Body)
	}
	if w := send(t, rest(t, silent{&service{}}, tenant), "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("with a database that does not answer: got %d %s, want 503", w.Code, w.Body)
	}
	ctx, end := context.WithCancel(t.Context())
	ending := api.HTTP(ctx, api.HTTPConfig{Service: &service{}, Logger: quiet()})
	end()
	if w := send(t, ending, "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("while it ends: got %d %s, want 503", w.Code, w.Body)
	}
	if w := send(t, ending, "GET", "/healthz", ""); w.Code != http.StatusOK {
		t.Errorf("it still lives: got %d %s, want 200", w.Code, w.Body)
	}
}
