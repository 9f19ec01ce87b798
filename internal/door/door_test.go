package door_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

// site is a server behind a door. Its handler reads the body and answers with the identity.
type site struct {
	t       testing.TB
	addr    string
	served  atomic.Int32 // requests that the door let through
	noIdent atomic.Int32 // of those, the ones without an identity
}

func open(t testing.TB, c door.Config) *site {
	t.Helper()
	s := &site{t: t}
	if c.Own == "" {
		c.Own = "home"
	}
	l, err := listen.Open(t.Context(), listen.Config{PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	stop := listen.Serve(t.Context(), l, listen.Served{Handler: door.New(c, http.HandlerFunc(s.answer)), Connected: door.Connected})
	t.Cleanup(stop)
	return s
}

func (s *site) answer(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	id, ok := door.IdentityOf(r.Context())
	if !ok {
		s.noIdent.Add(1)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(id)
}

// reply is an answer with its body.
type reply struct {
	*http.Response
	body string
}

// ask sends a request. headers are pairs of name and value; the header Host sets the host.
func (s *site) ask(method, path, body string, headers ...string) reply {
	s.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			req.Host = value
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Add(name, value)
		}
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp, string(text)}
}

// refused checks that a request gets a status and the error body with a code, and does not
// reach the handler.
func (s *site) refused(what string, got reply, status int, code sandboxmcp.Code) {
	s.t.Helper()
	var e struct{ Error, Message, Hint string }
	err := json.Unmarshal([]byte(got.body), &e)
	if got.StatusCode != status || err != nil || e.Error != string(code) || e.Message == "" {
		s.t.Errorf("%s: got %d %q, want %d with the error %s", what, got.StatusCode, got.body, status, code)
	}
	if n := s.served.Load(); n != 0 {
		s.t.Errorf("%s: %d requests reached the handler, want none", what, n)
		s.served.Store(0)
	}
}

// holds checks that a request is let through, with these namespaces.
func (s *site) holds(what string, got reply, actor string, want ...sandboxmcp.Namespace) {
	s.t.Helper()
	var id sandboxmcp.Identity
	err := json.Unmarshal([]byte(got.body), &id)
	if got.StatusCode != http.StatusOK || err != nil || fmt.Sprint(id.Namespaces) != fmt.Sprint(want) || id.Actor != actor || id.Every {
		s.t.Errorf("%s: got %d %q, want %s with %v", what, got.StatusCode, got.body, actor, want)
	}
	s.served.Store(0)
}

func key(secret string, ns ...sandboxmcp.Namespace) door.Key {
	return door.Key{Secret: sandboxmcp.NewSecret(secret), Namespaces: ns}
}

func TestKeysAreBoundToNamespaces(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka", "team-a"), key("kb", "team-b", "team-c"), key("kc")}}})
	s.holds("X-API-Key", s.ask("GET", "/x", "", "X-API-Key", "ka"), "http key 1", "team-a")
	s.holds("Bearer", s.ask("POST", "/x", "{}", "Authorization", "bearer  kb"), "http key 2", "team-b", "team-c")
	s.holds("a key without namespaces", s.ask("GET", "/x", "", "X-API-Key", "kc"), "http key 3", "home")
	s.holds("X-Tenant-Id", s.ask("GET", "/x", "", "X-API-Key", "kb", "X-Tenant-Id", "team-c"), "http key 2", "team-c", "team-b")
}

// TestMissingAndForeignKeys: without one of the keys every request is refused, also one of the
// server's own user.
func TestMissingAndForeignKeys(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka", "team-a")}}, Local: sandboxmcp.NewSecret("local")})
	for name, headers := range map[string][]string{
		"no key":           nil,
		"a wrong key":      {"X-API-Key", "kb"},
		"a prefix":         {"X-API-Key", "k"},
		"an empty key":     {"Authorization", "Bearer "},
		"the local key":    {"X-API-Key", "local"},
		"another scheme":   {"Authorization", "Basic a2E6"},
		"two keys":         {"X-API-Key", "ka", "X-API-Key", "kb"},
		"two tokens":       {"Authorization", "Bearer ka", "Authorization", "Bearer kb"},
		"a key in a query": nil,
	} {
		got := s.ask("GET", "/x?api_key=ka", "", headers...)
		s.refused(name, got, http.StatusUnauthorized, sandboxmcp.CodeUnauthenticated)
		if !strings.HasPrefix(got.Header.Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("%s: got WWW-Authenticate %q, want Bearer", name, got.Header.Get("WWW-Authenticate"))
		}
	}
}

// TestNamespaceByHeader: X-Tenant-Id selects only what the key holds, spelled exactly.
func TestNamespaceByHeader(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka", "team-a"), key("kb", "team-b")}}})
	for _, tenant := range []string{"team-b", "home", "default", "*", "TEAM-A", "../team-b", "team-a,team-b"} {
		s.refused(tenant, s.ask("GET", "/x", "", "X-API-Key", "ka", "X-Tenant-Id", tenant), http.StatusForbidden, sandboxmcp.CodeAccessDenied)
	}
	s.refused("two headers", s.ask("GET", "/x", "", "X-API-Key", "ka", "X-Tenant-Id", "team-a", "X-Tenant-Id", "team-b"), http.StatusForbidden, sandboxmcp.CodeAccessDenied)
	for _, name := range []string{"X-Namespace", "X-Forwarded-User", "X-Actor"} {
		s.holds(name, s.ask("GET", "/x?namespace=team-b", "", "X-API-Key", "ka", name, "team-b"), "http key 1", "team-a")
	}
}

// TestForeignHost: a request for another host name is refused, whatever key it has.
func TestForeignHost(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka")}}, Names: []string{"sandbox.example"}})
	_, port, _ := net.SplitHostPort(s.addr)
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1", "sandbox.example.evil", "[::ffff:192.0.2.1]:" + port} {
		s.refused(host, s.ask("GET", "/x", "", "X-API-Key", "ka", "Host", host), http.StatusForbidden, sandboxmcp.CodeAccessDenied)
	}
	for _, host := range []string{"localhost:" + port, "127.0.0.1:" + port, "SANDBOX.example", "[::1]:" + port} {
		s.holds(host, s.ask("GET", "/x", "", "X-API-Key", "ka", "Host", host), "http key 1", "home")
	}
}

// TestForeignOrigin: a web page of another origin reaches nothing, with no kind of request.
func TestForeignOrigin(t *testing.T) {
	s := open(t, door.Config{NoAuth: true, Rules: door.Rules{Origins: []string{"https://ok.example"}}, Open: func(r *http.Request) bool { return r.URL.Path == "/link" }})
	for _, origin := range []string{"https://evil.example", "null", "http://127.0.0.1:1", "https://" + s.addr, "https://ok.example.evil", "http://ok.example", ""} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			if origin == "" {
				continue
			}
			got := s.ask(method, "/x", "", "Origin", origin, "Access-Control-Request-Method", "POST")
			s.refused(method+" from "+origin, got, http.StatusForbidden, sandboxmcp.CodeAccessDenied)
			if h := got.Header.Get("Access-Control-Allow-Origin"); h != "" {
				t.Errorf("%s: got Access-Control-Allow-Origin %q, want none", origin, h)
			}
		}
	}
	s.refused("a picture", s.ask("GET", "/x", "", "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, sandboxmcp.CodeAccessDenied)
	for _, kind := range []string{"text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		s.refused("a form of type "+kind, s.ask("POST", "/x", "{}", "Content-Type", "", "Content-Type", kind), http.StatusUnsupportedMediaType, sandboxmcp.CodeInvalidArgument)
	}
	s.holds("its own page", s.ask("GET", "/x", "", "Origin", "http://"+s.addr, "Sec-Fetch-Site", "same-origin"), "http", "home")
	s.holds("a link that a person follows", s.ask("GET", "/link", "", "Sec-Fetch-Site", "cross-site"), "http", "home")
}

func TestAllowedOriginsGetCORS(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka")}, Origins: []string{"https://ok.example"}}})
	got := s.ask("OPTIONS", "/x", "", "Origin", "https://ok.example", "Access-Control-Request-Method", "POST")
	if got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "https://ok.example" || !strings.Contains(got.Header.Get("Access-Control-Allow-Headers"), "X-API-Key") {
		t.Errorf("preflight: got %d %v, want 204 with the origin and X-API-Key", got.StatusCode, got.Header)
	}
	if s.served.Load() != 0 {
		t.Error("the preflight reached the handler, want an answer of the door")
	}
	got = s.ask("GET", "/x", "", "Origin", "https://ok.example")
	s.refused("no key", got, http.StatusUnauthorized, sandboxmcp.CodeUnauthenticated)
	if got.Header.Get("Access-Control-Allow-Origin") == "" {
		t.Error("a refusal has no CORS header, want one, so that the page can read it")
	}
	got = s.ask("GET", "/x", "", "Origin", "https://ok.example", "X-API-Key", "ka")
	s.holds("with a key", got, "http key 1", "home")
	if got.Header.Get("Access-Control-Allow-Origin") != "https://ok.example" || !strings.Contains(got.Header.Get("Vary"), "Origin") {
		t.Errorf("got %v, want the origin and Vary", got.Header)
	}
}

// TestOpenRequestsNeedNoKey: they have no identity then, and still need the right host.
func TestOpenRequestsNeedNoKey(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka", "team-a")}}, Open: func(r *http.Request) bool { return r.URL.Path == "/healthz" }})
	if got := s.ask("GET", "/healthz", ""); got.StatusCode != http.StatusOK || s.noIdent.Load() != 1 {
		t.Errorf("got %d and %d requests without an identity, want 200 and 1", got.StatusCode, s.noIdent.Load())
	}
	s.served.Store(0)
	s.holds("with a key", s.ask("GET", "/healthz", "", "X-API-Key", "ka"), "http key 1", "team-a")
	s.refused("foreign host", s.ask("GET", "/healthz", "", "Host", "evil.example"), http.StatusForbidden, sandboxmcp.CodeAccessDenied)
}

// TestRates: a caller that sends too fast is told when to go on; others are not affected.
func TestRates(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka", "a"), key("kb", "b")}, Rate: 1}})
	var got reply
	for range 50 {
		if got = s.ask("GET", "/x", "", "X-API-Key", "ka"); got.StatusCode != http.StatusOK {
			break
		}
	}
	s.served.Store(0)
	s.refused("too fast", got, http.StatusTooManyRequests, sandboxmcp.CodeQueueFull)
	if got.Header.Get("Retry-After") == "" {
		t.Errorf("got %v, want Retry-After", got.Header)
	}
	s.holds("another caller", s.ask("GET", "/x", "", "X-API-Key", "kb"), "http key 2", "b")
}

// TestGuessedKeys: wrong keys are answered more and more slowly; a right one always is.
func TestGuessedKeys(t *testing.T) {
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka", "a")}}})
	var got reply
	for i := range 500 {
		if got = s.ask("GET", "/x", "", "X-API-Key", fmt.Sprint("guess", i)); got.StatusCode != http.StatusUnauthorized {
			break
		}
	}
	s.refused("guesses", got, http.StatusTooManyRequests, sandboxmcp.CodeQueueFull)
	s.holds("the right key", s.ask("GET", "/x", "", "X-API-Key", "ka"), "http key 1", "a")
}

func TestLargeBodies(t *testing.T) {
	s := open(t, door.Config{NoAuth: true, MaxBody: 1000})
	s.refused("known length", s.ask("POST", "/x", strings.Repeat("x", 1001)), http.StatusRequestEntityTooLarge, sandboxmcp.CodeFileTooLarge)
	s.holds("as long as allowed", s.ask("POST", "/x", strings.Repeat("x", 1000)), "http", "home")
	out := s.raw("POST /x HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("64\r\n"+strings.Repeat("x", 100)+"\r\n", 20) + "0\r\n\r\n")
	if !strings.HasPrefix(out, "HTTP/1.1 400") {
		t.Errorf("unknown length: got %.40q, want 400 from a handler whose read failed", out)
	}
}

// raw sends bytes and returns what comes back until the server closes the connection.
func (s *site) raw(text string) string {
	s.t.Helper()
	c, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	stop := context.AfterFunc(s.t.Context(), func() { _ = c.Close() })
	defer stop()
	go func() { _, _ = io.WriteString(c, text) }()
	out, _ := io.ReadAll(c)
	return string(out)
}

// TestSmuggledRequests: what a proxy in front may take for the body of one request is never a
// second request with the first one's rights.
func TestSmuggledRequests(t *testing.T) {
	inner := "GET /inner HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nConnection: close\r\n\r\n"
	for name, text := range map[string]string{
		"both lengths":           "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nContent-Length: LEN\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"two lengths":            "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nContent-Length: 0\r\nContent-Length: LEN\r\n\r\n" + inner,
		"a folded header":        "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + inner,
		"an unknown encoding":    "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"a space before a colon": "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"two hosts":              "GET /x HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\nX-API-Key: ka\r\n\r\n",
		"a sign":                 "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nContent-Length: +LEN\r\n\r\n" + inner,
		"a bare line end":        "POST /x HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ka\r\nContent-Type: application/json\r\nContent-Length: 0\nTransfer-Encoding: chunked\r\nX: y\rZ: a\r\n\r\n" + inner,
	} {
		t.Run(name, func(t *testing.T) {
			var inside atomic.Int32
			s := &site{t: t}
			l, err := listen.Open(t.Context(), listen.Config{PortSet: true})
			if err != nil {
				t.Fatal(err)
			}
			s.addr = l.Addr().String()
			h := door.New(door.Config{Own: "home", Rules: door.Rules{Keys: []door.Key{key("ka")}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/inner" {
					inside.Add(1)
				}
				s.answer(w, r)
			}))
			defer listen.Serve(t.Context(), l, listen.Served{Handler: h})()
			text = strings.NewReplacer("HOST", s.addr, "LEN", fmt.Sprint(len(inner))).Replace(text)
			out := s.raw(text)
			if n := inside.Load(); n > 0 {
				t.Errorf("got %d requests out of the body, want none; the answer is %.200q", n, out)
			}
			if first, _, _ := strings.Cut(out, "\r\n"); out != "" && !strings.HasPrefix(first, "HTTP/1.1 4") && !strings.HasPrefix(first, "HTTP/1.1 5") && !strings.Contains(out, "\r\nConnection: close\r\n") {
				t.Errorf("got %q, want a refusal, or the end of the connection", first)
			}
		})
	}
}

// TestOneMegabyteOfHeaders: the server reads a few KiB of headers.
func TestOneMegabyteOfHeaders(t *testing.T) {
	s := open(t, door.Config{NoAuth: true})
	for name, header := range map[string]string{
		"one header":   "X-Long: " + strings.Repeat("x", 1<<20) + "\r\n",
		"many headers": strings.Repeat("X-A: b\r\n", 1<<17),
		"a long key":   "X-API-Key: " + strings.Repeat("k", 1<<20) + "\r\n",
	} {
		out := s.raw("GET /x HTTP/1.1\r\nHost: " + s.addr + "\r\n" + header + "\r\n")
		// The connection may be reset before the answer was read.
		if out != "" && !strings.HasPrefix(out, "HTTP/1.1 431") && !strings.HasPrefix(out, "HTTP/1.1 400") || s.served.Load() != 0 {
			t.Errorf("%s: got %.60q, want 431, 400 or a closed connection", name, out)
		}
	}
	s.holds("then", s.ask("GET", "/x", ""), "http", "home")
}

// TestSlowHeaders: connections that send their headers slowly keep no others out, and are
// closed.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	s := open(t, door.Config{NoAuth: true})
	var slow []net.Conn
	for range 50 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: 127"); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	s.holds("meanwhile", s.ask("GET", "/x", ""), "http", "home")
	for _, c := range slow {
		if _, err := bufio.NewReader(c).ReadByte(); err == nil {
			continue // 408
		} else if os.IsTimeout(err) { //nolint:forbidigo // no deadline is set, so it cannot be one
			t.Fatalf("got %v, want a closed connection", err)
		}
	}
}

// TestSlowBodyWithoutAKey: a caller without a key cannot hold a connection with a body that
// does not come.
func TestSlowBodyWithoutAKey(t *testing.T) {
	t.Parallel()
	s := open(t, door.Config{Rules: door.Rules{Keys: []door.Key{key("ka")}}})
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: "+s.addr+"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(c) // to the end of the connection
	if !strings.HasPrefix(string(out), "HTTP/1.1 401") {
		t.Errorf("got %.60q, want 401 and a closed connection", out)
	}
}

// TestSlowBody: a client that stops in the middle of its body is disconnected.
func TestSlowBody(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for 10 s; TestDeadlinesOfBodies looks at the same")
	}
	t.Parallel()
	s := open(t, door.Config{NoAuth: true})
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: "+s.addr+"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(out), "HTTP/1.1 400") {
		t.Errorf("got %.60q, want 400 from a handler whose read failed, and a closed connection", out)
	}
}
