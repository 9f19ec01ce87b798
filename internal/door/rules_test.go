package door_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
)

// TestRevokedKeys: after new rules a key that is gone opens nothing, and its streams have ended. Those
// of other keys go on.
func TestRevokedKeys(t *testing.T) {
	ended := make(chan string, 4)
	begun := make(chan string, 4)
	d := door.New(door.Config{Own: "home", Rules: door.Rules{Keys: []door.Key{key("ka", "a"), key("kb", "b"), key("kc", "c")}}}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id, _ := door.IdentityOf(r.Context())
		if r.URL.Path != "/stream" {
			return
		}
		begun <- string(id.Own())
		<-r.Context().Done()
		ended <- string(id.Own())
	}))
	s := httptest.NewServer(d)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	send := func(path, secret, origin string) int {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("X-API-Key", secret)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		res, err := s.Client().Do(r)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	for _, k := range []string{"ka", "kb", "kc"} {
		go send("/stream", k, "")
		<-begun
	}
	d.SetRules(door.Rules{Keys: []door.Key{key("ka", "a"), key("kb", "other"), key("kd", "d")}, Origins: []string{"https://ok.example"}})
	got := map[string]bool{<-ended: true, <-ended: true}
	if !got["b"] || !got["c"] {
		t.Errorf("ended: got %v, want b, which has another namespace, and c, which is gone", got)
	}
	for _, c := range []struct {
		key, origin string
		want        int
	}{{"ka", "", 200}, {"kb", "", 200}, {"kc", "", 401}, {"kd", "", 200}, {"ka", "https://ok.example", 200}, {"ka", "https://not.example", 403}} {
		if status := send("/", c.key, c.origin); status != c.want {
			t.Errorf("%s from %q: got %d, want %d", c.key, c.origin, status, c.want)
		}
	}
	select {
	case who := <-ended:
		t.Errorf("the stream of %s has ended, want it to go on", who)
	default:
	}
	d.SetRules(door.Rules{Rate: 1, Keys: []door.Key{key("ka", "a")}})
	limited := 0
	for range 5 {
		if send("/", "ka", "") == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("got every request answered, want the new rate to bound them")
	}
	cancel()
	<-ended
}

// TestStreamsWithoutAKeyEndWhenThereAreKeys: a stream that was opened without a key ends once callers
// need one, and not because of other new rules.
func TestStreamsWithoutAKeyEndWhenThereAreKeys(t *testing.T) {
	begun, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	d := door.New(door.Config{Own: "home", NoAuth: true}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	s := httptest.NewServer(d)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream := func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := s.Client().Do(r); err == nil {
			_ = res.Body.Close()
		}
		if ctx.Err() != nil {
			t.Error("the stream goes on with keys, want it ended")
		}
	}
	d.SetRules(door.Rules{Keys: []door.Key{key("ka", "a")}})
	d.SetRules(door.Rules{}) // without keys again
	for range 2 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			stream()
		}()
		<-begun
		d.SetRules(door.Rules{Rate: 7})
		select {
		case <-ended:
			t.Error("the stream has ended without keys, want it to go on")
		default:
		}
		d.SetRules(door.Rules{Keys: []door.Key{key("ka", "a")}})
		<-ended
		<-done
		d.SetRules(door.Rules{})
	}
}

// tokens accepts every token. It expires so that a request may still take a moment.
type tokens struct{}

func (tokens) Verify(context.Context, string) (sandboxmcp.Identity, time.Time, error) {
	return sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"a"}, Actor: "oauth x"}, time.Now().Add(100*time.Millisecond - door.TokenGrace), nil
}

func (tokens) Challenge() string { return "" }

// TestStreamsEndAfterTheirToken: a stream that begins with a valid token does not outlive it for ever.
func TestStreamsEndAfterTheirToken(t *testing.T) {
	ended := make(chan error, 1)
	d := door.New(door.Config{Own: "home", Tokens: tokens{}}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		ended <- r.Context().Err()
	}))
	s := httptest.NewServer(d)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer x")
	if res, err := s.Client().Do(r); err == nil {
		_ = res.Body.Close()
	}
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the server has ended the stream", err)
	}
}
