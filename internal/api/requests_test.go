package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// answer is what a server says to a request that is written by hand.
type answer struct {
	status int
	code   sandboxmcp.Code
	text   string
}

// request sends one, as another program would.
func request(t *testing.T, dir, id, method, path, body string) answer {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "run", id+".sock"))
	}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sandboxmcp-Proof", proofOf(t, dir, id))
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Error sandboxmcp.Code `json:"error"`
	}
	_ = json.Unmarshal(data, &shown)
	return answer{res.StatusCode, shown.Error, string(data)}
}

// TestBadRequestsAreRefused: a malformed request is answered with its code and reaches no
// service.
func TestBadRequestsAreRefused(t *testing.T) {
	const invalid = sandboxmcp.CodeInvalidArgument
	dir := t.TempDir()
	s, fake := listen(t, dir)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               sandboxmcp.Code
	}{
		{"GET", "/", "", 404, sandboxmcp.CodeNotFound},
		{"GET", "/v2/hello", "", 404, sandboxmcp.CodeNotFound},
		{"GET", "/v1/none", "", 404, sandboxmcp.CodeNotFound},
		{"POST", "/v1/stats", "", 404, sandboxmcp.CodeNotFound},
		{"PATCH", "/v1/sessions/a", "", 404, sandboxmcp.CodeNotFound},
		{"GET", "/v1/stats?namespace=a%20b", "", 400, invalid},
		{"GET", "/v1/requests/r?content=maybe", "", 400, invalid},
		{"GET", "/v1/requests/r?wait=soon", "", 400, invalid},
		{"GET", "/v1/requests/r?wait=5", "", 400, invalid},
		{"GET", "/v1/requests/a%20b", "", 404, sandboxmcp.CodeRequestNotFound},
		{"GET", "/v1/sessions/a%20b", "", 400, sandboxmcp.CodeInvalidSessionID},
		{"PUT", "/v1/sessions/a%20b/file?path=x", "x", 400, sandboxmcp.CodeInvalidSessionID},
		{"PUT", "/v1/sessions/a/file?path=x&overwrite=perhaps", "x", 400, invalid},
		{"GET", "/v1/sessions/a/file?path=x", "", 400, invalid},
		{"GET", "/v1/sessions/a/file?path=x&limit=-1", "", 400, invalid},
		{"GET", "/v1/sessions/a/file?path=x&limit=67108865", "", 400, invalid},
		{"GET", "/v1/sessions/a/file?path=x&limit=9223372036854775808", "", 400, invalid},
		{"GET", "/v1/audit?since=yesterday", "", 400, invalid},
		{"GET", "/v1/audit?limit=1.5", "", 400, invalid},
		{"GET", "/v1/events?recent=2", "", 400, invalid},
		{"POST", "/v1/limits", "", 400, invalid},
		{"POST", "/v1/limits", "{", 400, invalid},
		{"POST", "/v1/limits", "[]", 400, invalid},
		{"POST", "/v1/limits", `{"reset":1}`, 400, invalid},
		{"POST", "/v1/limits", `{"more":1}`, 400, invalid},
		{"POST", "/v1/limits", `{"limits":{"more":1}}`, 400, invalid},
		{"POST", "/v1/limits", `{"reset":true} {}`, 400, invalid},
		{"POST", "/v1/limits", `{"reset":true}]`, 400, invalid},
		{"POST", "/v1/limits", `{"reset":true}}`, 400, invalid},
		{"POST", "/v1/limits", `{"reset":true}x`, 400, invalid},
		{"POST", "/v1/limits", `{"reset":` + strings.Repeat(" ", 1<<20) + `true}`, 400, invalid},
		{"POST", "/v1/execute", "{", 400, invalid},
		{"POST", "/v1/execute", `{"code":"x","more":1}`, 400, invalid},
		{"POST", "/v1/execute", `{"code":"x","session":{"more":1}}`, 400, invalid},
		{"POST", "/v1/execute", `{"code":"x","raw":{"more":1}}`, 400, invalid},
		{"POST", "/v1/execute", `{"code":"x","stdin_base64":"!"}`, 400, invalid},
		{"POST", "/v1/execute/async", `{"code":"x"}]`, 400, invalid},
		{"POST", "/v1/bridge", `{"data":{"k":}}`, 400, invalid},
		{"POST", "/v1/egress/decisions", `{}`, 400, invalid},
		{"POST", "/v1/egress/decisions", `{"approval_id":"a","domain":"a.example.com"}`, 400, invalid},
		{"POST", "/v1/vault", `{"key":"A","value_base64":"!"}`, 400, invalid},
	} {
		got := request(t, dir, s.Hello().ID, c.method, c.path, c.body)
		if got.status != c.status || got.code != c.code {
			t.Errorf("%s %s %.60s: got %d %s, want %d %s", c.method, c.path, c.body, got.status, got.text, c.status, c.code)
		}
		if calls := fake.take(); len(calls) != 0 {
			t.Errorf("%s %s %.60s: got the calls %+v, want none", c.method, c.path, c.body, calls)
		}
	}
	peers(t, dir, 1)
}

// TestErrorsRepeatNoSecret: the failure of a body that holds a secret shows no part
// of it.
func TestErrorsRepeatNoSecret(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	for _, body := range []string{
		`{"key":"A","value_base64":"c2VjcmV0","hunter2hunter2":1}`,
		`{"key":"A","value_base64":"hunter2!"}`,
		`{"key":"A","value_base64":hunter2}`,
		`{"key":"A","ttl_ns":"hunter2"}`,
		`{"key":"A","value_base64":"c2VjcmV0"} hunter2`,
		`hunter2`,
	} {
		got := request(t, dir, s.Hello().ID, http.MethodPost, "/v1/vault", body)
		if got.status != http.StatusBadRequest || got.code != sandboxmcp.CodeInvalidArgument || strings.ContainsAny(got.text, "!") || strings.Contains(got.text, "hunter2") {
			t.Errorf("%s: got %d %s, want 400 invalid_argument without a part of the body", body, got.status, got.text)
		}
	}
}

// TestNumbersThatJSONLacksAreRefused: they fail with a code, as in the server's own
// process.
func TestNumbersThatJSONLacksAreRefused(t *testing.T) {
	c, s, _ := pair(t)
	for _, n := range []float64{math.NaN(), math.Inf(1)} {
		limits := sandboxmcp.Limits{TimeoutSeconds: n}
		_, change := c.SetLimits(t.Context(), owner(), sandboxmcp.LimitsChange{Limits: limits})
		_, run := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x", Limits: limits})
		for verb, err := range map[string]error{"SetLimits": change, "Execute": run} {
			if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
				t.Errorf("%s of %v: got %v, want %s", verb, n, err, sandboxmcp.CodeInvalidArgument)
			}
		}
	}
	if calls := s.take(); len(calls) != 0 {
		t.Errorf("got the calls %+v, want none", calls)
	}
}

func TestSecretsOfAnyBytesArrive(t *testing.T) {
	c, s, _ := pair(t)
	value := "bytes \xff\x00 that are no text, " + strings.Repeat("x", 64<<10)
	add := sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value)}
	if err := c.AddSecret(t.Context(), owner(), add); err != nil {
		t.Fatal(err)
	}
	if _, got := received(t, s.take(), "AddSecret"); diff(list(add), got) != "" {
		t.Errorf("got another secret (-passed +received):\n%s", diff(list(add), got))
	}
}

// TestSessionFindsOneOfMany: a session that the service does not list is not found.
func TestSessionFindsOneOfMany(t *testing.T) {
	c, _, _ := pair(t)
	for id, want := range map[sandboxmcp.SessionID]sandboxmcp.Code{"other": sandboxmcp.CodeSessionNotFound, "a b": sandboxmcp.CodeInvalidSessionID, "a/b": sandboxmcp.CodeInvalidSessionID} {
		if _, err := c.Session(t.Context(), owner(), id); sandboxmcp.CodeOf(err) != want {
			t.Errorf("%s: got %v, want %s", id, err, want)
		}
	}
}

// TestIDsThatCannotBeHaveTheirCodes: a malformed id fails with the same code as in the
// server's own process, also if it cannot be part of a path.
func TestIDsThatCannotBeHaveTheirCodes(t *testing.T) {
	c, s, _ := pair(t)
	ctx := t.Context()
	s.refuse = func(c call) error { // as the engine does
		for _, in := range c.in {
			var err error
			switch id := in.(type) {
			case sandboxmcp.SessionID:
				_, err = sandboxmcp.ParseSessionID(string(id))
			case sandboxmcp.RequestID:
				_, err = sandboxmcp.ParseRequestID(string(id))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, id := range []string{"", ".", "..", "a/b", "a b", "%2F", "é", strings.Repeat("x", 65)} {
		session, run := sandboxmcp.SessionID(id), sandboxmcp.RequestID(id)
		for name, ask := range map[string]func() error{
			"Session":          func() error { _, err := c.Session(ctx, owner(), session); return err },
			"TerminateSession": func() error { return c.TerminateSession(ctx, owner(), session) },
			"CloseSession":     func() error { return c.CloseSession(ctx, owner(), session) },
			"SessionEntries":   func() error { _, err := c.SessionEntries(ctx, owner(), session, true); return err },
			"SessionFiles":     func() error { _, err := c.SessionFiles(ctx, owner(), session); return err },
			"ReadFile":         func() error { _, _, err := c.ReadFile(ctx, owner(), session, "x", 9); return err },
			"RemoveFile":       func() error { return c.RemoveFile(ctx, owner(), session, "x") },
		} {
			if err := ask(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidSessionID {
				t.Errorf("%s of %q: got %v, want %s", name, id, err, sandboxmcp.CodeInvalidSessionID)
			}
		}
		for name, ask := range map[string]func() error{
			"Lookup":          func() error { _, err := c.Lookup(ctx, owner(), sandboxmcp.Lookup{RequestID: run}); return err },
			"Cancel":          func() error { return c.Cancel(ctx, owner(), run) },
			"Output":          func() error { _, err := c.Output(ctx, owner(), run, "stdout"); return err },
			"ArtifactContent": func() error { _, err := c.ArtifactContent(ctx, owner(), run, "x"); return err },
		} {
			if err := ask(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
				t.Errorf("%s of %q: got %v, want %s", name, id, err, sandboxmcp.CodeRequestNotFound)
			}
		}
	}
}

// TestLookupReadsLittleContent: files have their content if they are small together. Complete
// says whether all of it is there.
func TestLookupReadsLittleContent(t *testing.T) {
	c, s, _ := pair(t)
	size, reads := int64(0), false
	s.lookup = func(l sandboxmcp.Lookup) (sandboxmcp.Result, error) {
		file := sandboxmcp.Artifact{Name: "a", SizeBytes: size}
		if reads = l.Content; reads {
			file.ContentB64 = make([]byte, min(size, 1<<10)) // the size is what counts
		}
		return sandboxmcp.Result{RequestID: l.RequestID, Metadata: map[string]any{"n": large}, Artifacts: []sandboxmcp.Artifact{file}}, nil
	}
	for _, q := range []struct {
		size            int64
		content         bool
		reads, complete bool
	}{{2, false, false, false}, {2, true, true, true}, {0, false, false, true}, {32 << 20, true, true, false}, {32<<20 + 1, true, false, false}} {
		size = q.size
		got, err := c.Lookup(t.Context(), owner(), sandboxmcp.Lookup{RequestID: "r", Content: q.content})
		if err != nil {
			t.Fatal(err)
		}
		if reads != q.reads || api.Complete(got) != q.complete {
			t.Errorf("%d bytes, content %v: got read %v and complete %v, want %v and %v", q.size, q.content, reads, api.Complete(got), q.reads, q.complete)
		}
		if got.RequestID != "r" || got.Metadata["n"] != large {
			t.Errorf("got the request %s with n %v, want r with n %s", got.RequestID, got.Metadata["n"], large)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// TestUploadBound: a file may be as large as the server's setting says. A file of a
// known size is refused before it is sent, and content is sent as it is read.
func TestUploadBound(t *testing.T) {
	for name, c := range map[string]struct{ set, bound int64 }{"Default": {0, 50 << 20}, "Less": {1000, 1000}, "More": {60 << 20, 60 << 20}} {
		t.Run(name, func(t *testing.T) {
			dir, s := t.TempDir(), &service{}
			var set func() int64
			if c.set > 0 {
				set = func() int64 { return c.set }
			}
			serve(t, api.Config{StateDir: dir, Service: s, MaxUpload: set})
			to := peers(t, dir, 1)[0]
			for _, told := range []bool{true, false} {
				for _, more := range []int64{0, 1} {
					in := &counted{r: io.LimitReader(zeros{}, c.bound+more)}
					u := sandboxmcp.Upload{SessionID: "mine", Name: "a", Body: in, Size: -1}
					if told {
						u.Size = c.bound + more
					}
					_, _, err := to.Upload(t.Context(), owner(), u)
					calls := s.take()
					switch {
					case more == 0 && (err != nil || in.n != c.bound || len(calls) != 1):
						t.Errorf("size told %v, %d bytes: got %v after %d bytes, want success after all", told, c.bound, err, in.n)
					case more == 0:
						if got := int64(len(calls[0].in[0].(sandboxmcp.Upload).Content)); got != c.bound {
							t.Errorf("size told %v: got %d bytes in the service, want %d", told, got, c.bound)
						}
					case told && (sandboxmcp.CodeOf(err) != sandboxmcp.CodeUploadTooLarge || in.n != 0):
						t.Errorf("one byte more: got %v after %d bytes, want %s after none", err, in.n, sandboxmcp.CodeUploadTooLarge)
					case err == nil || len(calls) != 0:
						t.Errorf("size told %v, one byte more: got %v and %d calls, want a failure and none", told, err, len(calls))
					}
				}
			}
			whole := sandboxmcp.Upload{SessionID: "mine", Name: "a", Content: make([]byte, c.bound+1)}
			if _, _, err := to.Upload(t.Context(), owner(), whole); sandboxmcp.CodeOf(err) != sandboxmcp.CodeUploadTooLarge {
				t.Errorf("content with one byte more: got %v, want %s", err, sandboxmcp.CodeUploadTooLarge)
			}
		})
	}
}

func TestUploadReturnsTheErrorOfItsBody(t *testing.T) {
	c, s, _ := pair(t)
	broken := errors.New("a bad disk")
	for _, size := range []int64{5, -1} {
		u := sandboxmcp.Upload{SessionID: "mine", Name: "a", Body: iotest.ErrReader(broken), Size: size}
		if _, _, err := c.Upload(t.Context(), owner(), u); !errors.Is(err, broken) {
			t.Errorf("size %d: got %v, want %v", size, err, broken)
		}
	}
	if calls := s.take(); len(calls) != 0 {
		t.Errorf("got the calls %+v, want none", calls)
	}
}

func TestEmptyFilesAreUploaded(t *testing.T) {
	c, s, _ := pair(t)
	for name, u := range map[string]sandboxmcp.Upload{"Content": {Content: []byte{}}, "Nil": {}, "Body": {Body: strings.NewReader("")}} {
		u.SessionID, u.Name = "mine", "a"
		if _, _, err := c.Upload(t.Context(), owner(), u); err != nil {
			t.Errorf("%s: got %v, want success", name, err)
			continue
		}
		if calls := s.take(); len(calls) != 1 || len(calls[0].in[0].(sandboxmcp.Upload).Content) != 0 {
			t.Errorf("%s: got the calls %+v, want one with an empty file", name, calls)
		}
	}
}

// TestReadFileIsBounded: no more than MaxFile bytes are asked for, and a limit that
// is none is refused.
func TestReadFileIsBounded(t *testing.T) {
	c, s, _ := pair(t)
	if _, _, err := c.ReadFile(t.Context(), owner(), "mine", "/x", 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, got := received(t, s.take(), "ReadFile"); got[2] != int64(api.MaxFile) {
		t.Errorf("got limit %v, want %d", got[2], api.MaxFile)
	}
	for _, limit := range []int64{0, -1} {
		if _, _, err := c.ReadFile(t.Context(), owner(), "mine", "/x", limit); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("limit %d: got %v, want %s", limit, err, sandboxmcp.CodeInvalidArgument)
		}
	}
}

// TestRESTHintsNameRoutes: if a route gives the answer of a command in a hint, the hint names the route.
func TestRESTHintsNameRoutes(t *testing.T) {
	s := &service{refuse: func(call) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no secret K").WithHint("see `sandboxmcp vault list`")
	}}
	w := send(t, rest(t, s, operator), "DELETE", "/vault/K", "")
	if !strings.Contains(w.Body.String(), `"hint":"see GET /vault"`) {
		t.Errorf("got %s, want a hint with GET /vault", w.Body)
	}
}

// TestRESTWholeNumbers: a number without a fraction is a whole number, however it is written.
func TestRESTWholeNumbers(t *testing.T) {
	s := &service{}
	send(t, rest(t, s, operator), "POST", "/execute", `{"code":"c","max_ram_mb":64.0,"max_processes":1e1}`)
	_, in := received(t, s.take(), "Execute")
	want := sandboxmcp.Request{Code: "c", Limits: sandboxmcp.Limits{MaxRAMMB: 64, MaxProcesses: 10}, Display: sandboxmcp.DisplayStdout, Reader: sandboxmcp.ReaderREST}
	if diff(list(want), in) != "" {
		t.Errorf("got %+v, want %+v", in, want)
	}
}
