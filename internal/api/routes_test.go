package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

var (
	wildcard = regexp.MustCompile(`\{([^}]*)\}`)
	tagName  = regexp.MustCompile(`^[a-z][a-z_]*$`)
)

// register adds a pattern to a mux. The error says with which one it collides.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	return nil
}

// TestRoutePatterns: patterns are of this version, and no two match one request.
func TestRoutePatterns(t *testing.T) {
	mux := http.NewServeMux()
	routes := api.Routes()
	if len(routes) < 30 {
		t.Errorf("got %d routes, want 30 at least: the table is not read", len(routes))
	}
	for _, r := range routes {
		method, path, ok := strings.Cut(r.Pattern, " ")
		if !ok || !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, method) {
			t.Errorf("%s: got the method %s, want GET, POST, PUT or DELETE", r.Pattern, method)
		}
		if want := fmt.Sprintf("/v%d/", api.Protocol); !strings.HasPrefix(path, want) {
			t.Errorf("%s: got the path %s, want it to begin with %s", r.Pattern, path, want)
		}
		if err := register(mux, r.Pattern); err != nil {
			t.Errorf("%s: got %v, want no other route for its requests", r.Pattern, err)
		}
	}
}

// TestRouteInputs: each field of an input has one place in the request, and a type that can be
// sent there.
func TestRouteInputs(t *testing.T) {
	for _, r := range slices.Concat(api.Routes(), api.RESTRoutes()) {
		if r.In == nil {
			continue
		}
		method, path, _ := strings.Cut(r.Pattern, " ")
		missing := map[string]bool{}
		for _, m := range wildcard.FindAllStringSubmatch(path, -1) {
			missing[m[1]] = true
		}
		bodies, seen := 0, map[string]bool{"namespace": true} // that of the caller
		for f := range r.In.Fields() {
			where := placesOf(f)
			if len(where) != 1 || !f.IsExported() {
				t.Errorf("%s: got the places %v for the field %s, want one of path, query, header and body, and an exported field", r.Pattern, where, f.Name)
				continue
			}
			name := f.Tag.Get(where[0])
			switch where[0] {
			case "path":
				if !missing[name] {
					t.Errorf("%s: got the path field %s, want a {%s} of its own in the path", r.Pattern, f.Name, name)
				}
				delete(missing, name)
				bindable(t, r.Pattern, f)
			case "query":
				if seen[name] || !tagName.MatchString(name) {
					t.Errorf("%s: got the query parameter %q for the field %s, want a plain name that is not taken", r.Pattern, name, f.Name)
				}
				seen[name] = true
				bindable(t, r.Pattern, f)
			case "header":
				bindable(t, r.Pattern, f)
			case "body":
				if bodies++; bodies > 1 || method == "GET" || !slices.Contains([]string{"json", "secret", "form", "form,secret"}, name) {
					t.Errorf("%s: got the body %s of kind %q, want at most one of kind json, secret or form, and none for GET", r.Pattern, f.Name, name)
				}
			}
			if holdsSecret(f) && name != "secret" {
				t.Errorf("%s: got the field %s with a secret, want it in a body of kind secret", r.Pattern, f.Name)
			}
		}
		for name := range missing {
			t.Errorf("%s: got no field for {%s}, want one", r.Pattern, name)
		}
	}
}

func placesOf(f reflect.StructField) []string {
	var where []string
	for _, place := range []string{"path", "query", "header", "body"} {
		if _, ok := f.Tag.Lookup(place); ok {
			where = append(where, place)
		}
	}
	return where
}

// holdsSecret reports whether a value of a field encodes to a placeholder, so that
// it would be lost.
func holdsSecret(f reflect.StructField) bool {
	if f.Type.Kind() != reflect.Struct {
		return false
	}
	for in := range f.Type.Fields() {
		if in.Type == reflect.TypeFor[sandboxmcp.Secret]() {
			return true
		}
	}
	return false
}

// bindable fails unless the server reads a field of that type from text.
func bindable(t *testing.T, pattern string, f reflect.StructField) {
	t.Helper()
	sample := "1"
	switch f.Type {
	case reflect.TypeFor[time.Time]():
		sample = "2031-02-03T04:05:06.000000007Z"
	case reflect.TypeFor[time.Duration]():
		sample = "1m30s"
	}
	if f.Type.Kind() == reflect.Pointer {
		sample = "{}"
	}
	if err := api.ParseKind(f.Type, sample); err != nil {
		t.Errorf("%s: got %v for the field %s of type %s, want a type that is read from text", pattern, err, f.Name, f.Type)
	}
}

// TestUnreadableKindIsRefused checks the tool of the test above.
func TestUnreadableKindIsRefused(t *testing.T) {
	for _, kind := range []reflect.Type{reflect.TypeFor[[]string](), reflect.TypeFor[map[string]string](), reflect.TypeFor[float64](), reflect.TypeFor[struct{}]()} {
		if err := api.ParseKind(kind, "1"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %v, want %s", kind, err, sandboxmcp.CodeInvalidArgument)
		}
	}
}

// asked sends a request to a handler that is mounted for an identity.
func asked(t *testing.T, s *service, identity sandboxmcp.Identity, method, target, body string) answer {
	t.Helper()
	h := api.NewHandler(t.Context(), api.Config{Service: s, Logger: quiet()}, identity)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if strings.HasPrefix(target, "/v1/events?") {
		cancel() // or following would not end
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body)))
	text := w.Body.String()
	for _, code := range []sandboxmcp.Code{sandboxmcp.CodeAccessDenied, sandboxmcp.CodeInvalidArgument} {
		if strings.Contains(text, `"error":"`+string(code)+`"`) {
			return answer{w.Code, code, text}
		}
	}
	return answer{w.Code, "", text}
}

// TestIdentityHoldsNamespaces: a peer acts in the namespaces that its identity
// holds, under the identity's actor, and in no other.
func TestIdentityHoldsNamespaces(t *testing.T) {
	const denied, invalid = sandboxmcp.CodeAccessDenied, sandboxmcp.CodeInvalidArgument
	two := sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"a", "b"}, Actor: "key-1"}
	every := sandboxmcp.Identity{Every: true, Namespaces: []sandboxmcp.Namespace{"a"}, Actor: "cli"}
	nothing := sandboxmcp.Identity{Actor: "mcp"}
	requests := []struct{ method, path, body string }{
		{"GET", "/v1/sessions?x=1", ""},
		{"POST", "/v1/execute?x=1", `{"code":"x"}`},
		{"PUT", "/v1/sessions/s/file?path=x", "content"},
		{"GET", "/v1/events?x=1", ""},
		{"POST", "/v1/vault?x=1", `{"key":"A","value_base64":"c2VjcmV0"}`},
	}
	for _, c := range []struct {
		identity sandboxmcp.Identity
		name     string // as the request writes it
		want     sandboxmcp.Namespace
		code     sandboxmcp.Code
	}{
		{two, "", "a", ""},
		{two, "default", "a", ""},
		{two, "a", "a", ""},
		{two, "b", "b", ""},
		{two, "c", "", denied},
		{two, "A", "", denied},
		{two, "*", "", invalid},
		{two, "a%20b", "", invalid},
		{two, "b&namespace=c", "b", ""}, // the first one counts
		{two, "c&namespace=b", "", denied},
		{every, "", "a", ""},
		{every, "default", "default", ""},
		{every, "c", "c", ""},
		{every, "*", sandboxmcp.EveryNamespace, ""},
		{every, "**", "", invalid},
		{nothing, "", "", ""},
		{nothing, "default", "", ""},
		{nothing, "a", "", denied},
		{nothing, "*", "", invalid},
	} {
		for _, r := range requests {
			s := &service{}
			got := asked(t, s, c.identity, r.method, r.path+"&namespace="+c.name, r.body)
			calls := s.take()
			what := fmt.Sprintf("%+v asks for %q: %s %s", c.identity, c.name, r.method, r.path)
			if c.code != "" {
				if got.status != c.code.Row().HTTP || got.code != c.code || len(calls) != 0 {
					t.Errorf("%s: got %d %s and the calls %+v, want %s and none", what, got.status, got.text, calls, c.code)
				}
				continue
			}
			want := sandboxmcp.Caller{Namespace: c.want, Actor: c.identity.Actor}
			if len(c.identity.Namespaces) > 1 && !c.identity.Every {
				want.Holder = want.Actor
			}
			if got.code != "" || len(calls) != 1 || calls[0].caller != want {
				t.Errorf("%s: got %d %s and the calls %+v, want one for %+v", what, got.status, got.text, calls, want)
			}
		}
	}
}

// TestEveryRouteLooksAtTheNamespace: no route answers for a namespace that the peer
// does not hold.
func TestEveryRouteLooksAtTheNamespace(t *testing.T) {
	identity := sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"a"}, Actor: "mcp"}
	for _, r := range api.Routes() {
		method, path, _ := strings.Cut(r.Pattern, " ")
		for name, want := range map[string]sandboxmcp.Code{"other": sandboxmcp.CodeAccessDenied, "*": sandboxmcp.CodeInvalidArgument} {
			s := &service{}
			got := asked(t, s, identity, method, wildcard.ReplaceAllString(path, "x")+"?namespace="+name, "{}")
			if calls := s.take(); got.code != want || len(calls) != 0 {
				t.Errorf("%s of namespace %s: got %d %s and the calls %+v, want %s and none", r.Pattern, name, got.status, got.text, calls, want)
			}
		}
	}
}

// TestHalfABodyIsGivenUp: a caller that stops in the middle of its request is given
// up when the listener's read deadline passes, so that it delays no drain.
func TestHalfABodyIsGivenUp(t *testing.T) {
	s := &service{}
	server := httptest.NewUnstartedServer(api.NewHandler(t.Context(), api.Config{Service: s, Logger: quiet()}, sandboxmcp.Identity{Every: true}))
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	for _, r := range api.Routes() {
		method, path, _ := strings.Cut(r.Pattern, " ")
		if i := slices.IndexFunc(reflect.VisibleFields(r.In), func(f reflect.StructField) bool { return f.Tag.Get("body") != "" }); i < 0 {
			continue
		}
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", method, path); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 1<<10)
		n, err := conn.Read(text)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%s: got %v, want an answer or the end of the connection", r.Pattern, err)
		} else if n > 0 && !strings.HasPrefix(string(text[:n]), "HTTP/1.1 400 ") {
			t.Errorf("%s: got %q, want status 400", r.Pattern, text[:n])
		}
		_ = conn.Close()
	}
	if calls := s.take(); len(calls) != 0 {
		t.Errorf("got the calls %+v, want none", calls)
	}
}
