package oauth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sandboxmcp/sandboxmcp/internal/oauth"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const resource = "https://sandbox.example/mcp"

// issuer is an OAuth issuer on loopback.
type issuer struct {
	*httptest.Server
	t       testing.TB
	fetches atomic.Int32 // of the key set

	mu   sync.Mutex
	keys map[string]*ecdsa.PrivateKey // by id; guarded by mu
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: map[string]*ecdsa.PrivateKey{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		set := jose.JSONWebKeySet{}
		for id, k := range i.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Public(), KeyID: id, Use: "sig", Algorithm: "ES256"})
		}
		_ = json.NewEncoder(w).Encode(set)
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	i.add("k1")
	return i
}

func (i *issuer) add(id string) {
	i.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[id] = k
}

// sign returns a token with claims, signed with a key.
func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, head map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	o := &jose.SignerOptions{ExtraHeaders: head}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// claims returns those of a good token, with some of them replaced, or left out if nil.
func (i *issuer) claims(but map[string]any) map[string]any {
	c := map[string]any{"iss": i.URL, "aud": []string{"other", resource}, "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "scope": "run read"}
	for k, v := range but {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (i *issuer) token(id string, but map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return sign(i.t, jose.ES256, jose.JSONWebKey{Key: i.keys[id], KeyID: id}, nil, i.claims(but))
}

func (i *issuer) verifier() *oauth.Verifier {
	return oauth.New(oauth.Config{Issuer: i.URL, Resource: resource, Scope: "run", Own: "home"})
}

func TestTokensHaveIdentities(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	for _, c := range []struct {
		name  string
		but   map[string]any
		actor string
		own   string
		held  int
	}{
		{"without namespaces", nil, "oauth ann", "home", 1},
		{"a list", map[string]any{oauth.NamespacesClaim: []string{"a", "b"}}, "oauth ann", "a", 2},
		{"words", map[string]any{oauth.NamespacesClaim: "b a"}, "oauth ann", "b", 2},
		{"one audience", map[string]any{"aud": resource}, "oauth ann", "home", 1},
	} {
		got, _, err := v.Verify(t.Context(), i.token("k1", c.but))
		if err != nil || got.Actor != c.actor || string(got.Own()) != c.own || len(got.Namespaces) != c.held || got.Every {
			t.Errorf("%s: got %+v and %v, want %s in %s", c.name, got, err, c.actor, c.own)
		}
	}
	odd, _, err := v.Verify(t.Context(), i.token("k1", map[string]any{"sub": "a\nb"}))
	if err != nil || !strings.HasPrefix(odd.Actor, "oauth sha256:") {
		t.Errorf("an odd subject: got %+v and %v, want its hash", odd, err)
	}
	forged, _, err := v.Verify(t.Context(), i.token("k1", map[string]any{"sub": strings.TrimPrefix(odd.Actor, "oauth ")}))
	if err != nil || forged.Actor == odd.Actor {
		t.Errorf("a subject that looks like that hash: got %+v and %v, want another name", forged, err)
	}
}

// TestForgedTokens: every token that the issuer has not signed for this server is refused.
func TestForgedTokens(t *testing.T) {
	i := newIssuer(t)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := i.token("k1", nil)
	parts := strings.Split(good, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	public, err := json.Marshal(jose.JSONWebKey{Key: i.keys["k1"].Public(), KeyID: "k1"})
	if err != nil {
		t.Fatal(err)
	}
	own := jose.JSONWebKey{Key: other, KeyID: "k1"}
	for name, token := range map[string]string{
		"alg none":                      encode(`{"alg":"none","kid":"k1"}`) + "." + parts[1] + ".",
		"alg None":                      encode(`{"alg":"None","kid":"k1"}`) + "." + parts[1] + ".",
		"alg none with a signature":     encode(`{"alg":"none","kid":"k1"}`) + "." + parts[1] + "." + parts[2],
		"no signature":                  parts[0] + "." + parts[1] + ".",
		"no alg":                        encode(`{"kid":"k1"}`) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key":     sign(t, jose.HS256, public, map[jose.HeaderKey]any{"kid": "k1"}, i.claims(nil)),
		"another key under the id":      sign(t, jose.ES256, own, nil, i.claims(nil)),
		"another key without an id":     sign(t, jose.ES256, other, nil, i.claims(nil)),
		"a key in its own header":       sign(t, jose.ES256, own, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: other.Public(), KeyID: "k1"}}, i.claims(nil)),
		"a key set of its own":          sign(t, jose.ES256, own, map[jose.HeaderKey]any{"jku": "https://evil.example/keys"}, i.claims(nil)),
		"another algorithm":             sign(t, jose.RS256, jose.JSONWebKey{Key: big, KeyID: "k1"}, nil, i.claims(nil)),
		"another payload":               parts[0] + "." + encode(`{"iss":"`+i.URL+`","aud":"`+resource+`","sub":"root","exp":99999999999,"scope":"run"}`) + "." + parts[2],
		"wrong issuer":                  i.token("k1", map[string]any{"iss": "https://evil.example"}),
		"issuer with a slash":           i.token("k1", map[string]any{"iss": i.URL + "/"}),
		"no issuer":                     i.token("k1", map[string]any{"iss": nil}),
		"wrong audience":                i.token("k1", map[string]any{"aud": "https://other.example/mcp"}),
		"a prefix of the audience":      i.token("k1", map[string]any{"aud": "https://sandbox.example"}),
		"no audience":                   i.token("k1", map[string]any{"aud": nil}),
		"expired":                       i.token("k1", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"without an end":                i.token("k1", map[string]any{"exp": nil}),
		"not yet valid":                 i.token("k1", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"without a subject":             i.token("k1", map[string]any{"sub": nil}),
		"without the scope":             i.token("k1", map[string]any{"scope": "runs read"}),
		"an illegal namespace":          i.token("k1", map[string]any{oauth.NamespacesClaim: []string{"a", "../b"}}),
		"every namespace":               i.token("k1", map[string]any{oauth.NamespacesClaim: []string{"*"}}),
		"no namespace":                  i.token("k1", map[string]any{oauth.NamespacesClaim: []string{}}),
		"namespaces of the wrong shape": i.token("k1", map[string]any{oauth.NamespacesClaim: map[string]any{"a": 1}}),
		"bound to a key":                i.token("k1", map[string]any{"cnf": map[string]any{"jkt": "x"}}),
		"bound to a certificate":        i.token("k1", map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}),
		"bound to something":            i.token("k1", map[string]any{"cnf": "x"}),
		"a logout token":                sign(t, jose.ES256, jose.JSONWebKey{Key: i.keys["k1"], KeyID: "k1"}, map[jose.HeaderKey]any{"typ": "logout+jwt"}, i.claims(nil)),
		"a typ that is no text":         sign(t, jose.ES256, jose.JSONWebKey{Key: i.keys["k1"], KeyID: "k1"}, map[jose.HeaderKey]any{"typ": []string{"at+jwt"}}, i.claims(nil)),
		"no token":                      "ka",
		"empty":                         "",
		"dots":                          "..",
		"too long":                      good + strings.Repeat("x", 20_000),
	} {
		v := i.verifier()
		if got, _, err := v.Verify(t.Context(), token); err == nil {
			t.Errorf("%s: got %+v, want a refusal", name, got)
		} else if len(token) > 50 && strings.Contains(err.Error(), token[:50]) {
			t.Errorf("%s: got the error %v, want nothing of the token in it", name, err)
		}
	}
	if _, _, err := i.verifier().Verify(t.Context(), good); err != nil {
		t.Errorf("the token itself: got %v, want it accepted", err)
	}
	for _, kind := range []string{"at+jwt", "AT+JWT", "application/at+jwt", "JWT"} {
		token := sign(t, jose.ES256, jose.JSONWebKey{Key: i.keys["k1"], KeyID: "k1"}, map[jose.HeaderKey]any{"typ": kind}, i.claims(nil))
		if _, _, err := i.verifier().Verify(t.Context(), token); err != nil {
			t.Errorf("typ %s: got %v, want it accepted", kind, err)
		}
	}
}

// TestKeysAreFetchedSeldom: unknown key ids do not make the server ask the issuer each time,
// and a new key of the issuer is found.
func TestKeysAreFetchedSeldom(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	old := i.token("k1", nil)
	for range 50 {
		if _, _, err := v.Verify(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		stranger := sign(t, jose.ES256, jose.JSONWebKey{Key: i.keys["k1"], KeyID: rand.Text()}, nil, i.claims(nil))
		if _, _, err := v.Verify(t.Context(), stranger); err == nil {
			t.Fatal("got an unknown key id accepted, want a refusal")
		}
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("got %d fetches of the key set, want 1", n)
	}
	i.add("k2")
	oauth.Later(v, time.Minute)
	if _, _, err := v.Verify(t.Context(), i.token("k2", nil)); err != nil {
		t.Errorf("a new key: got %v, want it accepted", err)
	}
	i.Close()
	if _, _, err := v.Verify(t.Context(), i.token("k2", nil)); err != nil {
		t.Errorf("without the issuer: got %v, want the known key to do", err)
	}
}

// TestAnotherIssuersMetadata: metadata that names another issuer is not believed.
func TestAnotherIssuersMetadata(t *testing.T) {
	i := newIssuer(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	}))
	defer s.Close()
	v := oauth.New(oauth.Config{Issuer: s.URL, Resource: resource, Own: "home"})
	if _, _, err := v.Verify(t.Context(), i.token("k1", map[string]any{"iss": s.URL})); err == nil {
		t.Error("got a token accepted, want a refusal")
	}
}

func TestIssuersUseTLS(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://login.example": true, "https://login.example/realms/a": true, "http://127.0.0.1:9": true, "http://localhost:9": true,
		"http://login.example": false, "ftp://login.example": false, "login.example": false, "https://login.example?x=1": false, "http://127.evil.example": false,
	} {
		if err := oauth.CheckIssuer(text); (err == nil) != ok {
			t.Errorf("%s: got %v, want accepted %v", text, err, ok)
		}
	}
}

func TestMetadataOfTheResource(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	w := httptest.NewRecorder()
	v.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, oauth.MetadataPath, nil))
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc["resource"] != resource {
		t.Errorf("got %s and %v, want the resource", w.Body, err)
	}
	if list, _ := doc["authorization_servers"].([]any); len(list) != 1 || list[0] != i.URL {
		t.Errorf("got %v, want the issuer", doc["authorization_servers"])
	}
	if got, want := v.Challenge(), `resource_metadata="https://sandbox.example/.well-known/oauth-protected-resource/mcp"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

// gate is a transport that holds requests while it is shut.
type gate struct {
	http.Transport

	shut atomic.Bool
	held chan struct{} // gets an element for each held request
	open chan struct{}
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.shut.Load() {
		g.held <- struct{}{}
		<-g.open
	}
	return g.Transport.RoundTrip(r)
}

// TestKnownKeysDoNotWait: a token with an unknown key, which anybody can send, makes the verifier ask
// the issuer. Tokens with a known key do not wait for its answer.
func TestKnownKeysDoNotWait(t *testing.T) {
	i := newIssuer(t)
	g := &gate{held: make(chan struct{}, 1), open: make(chan struct{})}
	v := oauth.New(oauth.Config{Issuer: i.URL, Resource: resource, Scope: "run", Own: "home", Client: &http.Client{Transport: g}})
	known := i.token("k1", nil)
	if _, _, err := v.Verify(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	oauth.Later(v, time.Minute)
	g.shut.Store(true)
	i.add("k2")
	unknown, later := i.token("k2", nil), make(chan error, 1)
	go func() {
		_, _, err := v.Verify(t.Context(), unknown)
		later <- err
	}()
	<-g.held
	checked := make(chan error, 1)
	go func() {
		_, _, err := v.Verify(t.Context(), known)
		checked <- err
	}()
	var done atomic.Bool
	go func() {
		if err := <-checked; err != nil {
			t.Errorf("the known key: %v", err)
		}
		done.Store(true)
	}()
	testkit.Until(t, "the known key was checked", done.Load)
	select {
	case err := <-later:
		t.Errorf("the unknown key was judged before the issuer answered: %v", err)
	default:
	}
	close(g.open)
	if err := <-later; err != nil {
		t.Errorf("the new key: %v", err)
	}
}

// TestKeysThatAreNotUnderstood: a key set may have keys of a kind that is not understood, and broken ones. The
// others hold all the same (RFC 7517, 5).
func TestKeysThatAreNotUnderstood(t *testing.T) {
	i := newIssuer(t)
	good, err := json.Marshal(jose.JSONWebKey{Key: i.keys["k1"].Public(), KeyID: "k1", Use: "sig", Algorithm: "ES256"})
	if err != nil {
		t.Fatal(err)
	}
	for name, odd := range map[string]string{
		"another curve":       `{"kty":"EC","kid":"o","crv":"secp256k1","x":"AA","y":"AA"}`,
		"Ed448":               `{"kty":"OKP","kid":"o","crv":"Ed448","x":"AA"}`,
		"another kind":        `{"kty":"LMS","kid":"o"}`,
		"no kind":             `{"kid":"o"}`,
		"a wrong certificate": `{"kty":"RSA","kid":"o","n":"AQAB","e":"AQAB","x5c":["AAAA"]}`,
		"no object":           `7`,
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"keys":[` + odd + `,` + string(good) + `]}`))
			}))
			defer s.Close()
			v := oauth.New(oauth.Config{Issuer: i.URL, Resource: resource, Scope: "run", Own: "home", KeysURL: s.URL})
			if _, _, err := v.Verify(t.Context(), i.token("k1", nil)); err != nil {
				t.Errorf("got %v, want the token accepted", err)
			}
		})
	}
}

// TestAnIssuerThatIsDownDelaysNobody: once it is known that the keys cannot be fetched, tokens with a known key
// wait for no further try, however old that key is.
func TestAnIssuerThatIsDownDelaysNobody(t *testing.T) {
	i := newIssuer(t)
	g := &gate{held: make(chan struct{}, 1), open: make(chan struct{})}
	v := oauth.New(oauth.Config{Issuer: i.URL, Resource: resource, Scope: "run", Own: "home", Client: &http.Client{Transport: g}})
	known := i.token("k1", map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})
	if _, _, err := v.Verify(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	i.Close()
	oauth.Later(v, 2*time.Hour)
	if _, _, err := v.Verify(t.Context(), known); err != nil {
		t.Errorf("after a try that has failed: got %v, want the known key to do", err)
	}
	oauth.Later(v, 2*time.Hour+time.Minute)
	g.shut.Store(true)
	var done atomic.Bool
	go func() {
		if _, _, err := v.Verify(t.Context(), known); err != nil {
			t.Errorf("during a further try: got %v, want the known key to do", err)
		}
		done.Store(true)
	}()
	<-g.held
	testkit.Until(t, "the known key was checked", done.Load)
	close(g.open)
}

// TestKeysThatCannotBeRenewedAreNotBelievedForEver: the issuer may have withdrawn a key that was stolen, and
// the thief may keep the server from hearing of it.
func TestKeysThatCannotBeRenewedAreNotBelievedForEver(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	known := i.token("k1", map[string]any{"exp": time.Now().Add(48 * time.Hour).Unix()})
	if _, _, err := v.Verify(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	i.Close()
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{23 * time.Hour, true}, {24*time.Hour + time.Minute, false}, {25 * time.Hour, false}} {
		oauth.Later(v, c.after)
		if _, _, err := v.Verify(t.Context(), known); (err == nil) != c.want {
			t.Errorf("%s after the keys were fetched: got %v, want the token accepted: %v", c.after, err, c.want)
		}
	}
}

// TestAnIssuerMovesItsKeys: when the keys are fetched again, they come from where the issuer's metadata says by then. Keys
// that the issuer has left at the former place are believed no longer.
func TestAnIssuerMovesItsKeys(t *testing.T) {
	former, later := newIssuer(t), newIssuer(t)
	later.add("k2")
	var moved atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := former.URL
		if moved.Load() {
			at = later.URL
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": "http://" + r.Host, "jwks_uri": at + "/keys"})
	}))
	defer s.Close()
	v := oauth.New(oauth.Config{Issuer: s.URL, Resource: resource, Scope: "run", Own: "home"})
	accepted := func(token string) bool {
		_, _, err := v.Verify(t.Context(), token)
		return err == nil
	}
	but := map[string]any{"iss": s.URL, "exp": time.Now().Add(24 * time.Hour).Unix()}
	old, young := former.token("k1", but), later.token("k2", but)
	if !accepted(old) || accepted(young) {
		t.Error("before the move: want the former key alone accepted")
	}
	moved.Store(true)
	oauth.Later(v, 2*time.Hour)
	if accepted(old) || !accepted(young) {
		t.Error("after the move: want the later key alone accepted")
	}
}
