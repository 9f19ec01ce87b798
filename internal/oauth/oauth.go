// Package oauth checks access tokens of an OAuth issuer, as a resource server does: JSON Web
// Tokens that the issuer has signed for this server. It gets the issuer's keys over HTTP.
package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sandboxmcp/sandboxmcp"
)

// NamespacesClaim is the claim of a token with the namespaces that its holder may use: a list,
// or words with spaces between them. The first is the default. Without it the holder may use
// the server's own.
const NamespacesClaim = "sandboxmcp_namespaces"

const (
	maxToken   = 16 << 10 // bytes
	leeway     = 30 * time.Second
	maxSubject = 128 // bytes of a subject that is shown as it is
)

// algorithms are the signature algorithms that are accepted. Those with a shared secret are not among
// them, because the secret that checks such a signature can also make one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Config configures a [Verifier].
type Config struct {
	Issuer   string               // required; the claim iss of tokens
	Resource string               // required; URL of the MCP endpoint
	Audience string               // the claim aud of tokens; empty: Resource
	KeysURL  string               // the issuer's key set; empty: as the issuer's metadata says
	Scope    string               // a scope that tokens must have; empty: none
	Own      sandboxmcp.Namespace // namespace of tokens that name none; required
	Client   *http.Client         // nil: one with a time limit
}

// Verifier checks tokens. It may be used concurrently.
type Verifier struct {
	Config
	keys keySet
	now  func() time.Time
}

// New returns a verifier. It gets the keys when the first token comes.
func New(c Config) *Verifier {
	if c.Audience == "" {
		c.Audience = c.Resource
	}
	if c.Client == nil {
		c.Client = &http.Client{Timeout: fetchTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	v := &Verifier{Config: c, now: time.Now}
	v.keys = keySet{client: c.Client, issuer: c.Issuer, url: c.KeysURL, now: func() time.Time { return v.now() }}
	return v
}

// CheckIssuer fails if a URL cannot be that of an issuer: keys and metadata come over TLS, or
// from this machine.
func CheckIssuer(text string) error {
	u, err := url.Parse(text)
	local := err == nil && u.Hostname() == "localhost"
	if err == nil {
		ip, failed := netip.ParseAddr(u.Hostname())
		local = local || failed == nil && ip.IsLoopback()
	}
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !local) || u.RawQuery != "" || u.Fragment != "" {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s cannot be the URL of an OAuth issuer", sandboxmcp.Quote(text)).
			WithHint("use an https URL without query, such as https://login.example")
	}
	return nil
}

// claims are the claims of a token that are looked at.
type claims struct {
	jwt.Claims
	Scope      string          `json:"scope"`
	Namespaces json.RawMessage `json:"sandboxmcp_namespaces"`
	Bound      json.RawMessage `json:"cnf"` // the key or certificate of the client (RFC 7800, 8705, 9449)
}

// Verify returns the identity of a token, and when the token expires. The error says why the token is
// refused; it is for the log and has nothing of the token.
func (v *Verifier) Verify(ctx context.Context, token string) (id sandboxmcp.Identity, expires time.Time, err error) {
	c, err := v.verify(ctx, token)
	if err != nil {
		return id, expires, err
	}
	id.Namespaces, err = v.namespaces(c.Namespaces)
	id.Actor = actor(c.Subject)
	return id, c.Expiry.Time(), err
}

// verify returns the claims of a valid token.
func (v *Verifier) verify(ctx context.Context, token string) (claims, error) {
	none := claims{}
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return none, errors.New("it is no signed token")
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return none, errors.New("it is no token with an accepted signature")
	}
	c, err := v.open(ctx, parsed)
	if err != nil {
		return none, err
	}
	err = c.ValidateWithLeeway(jwt.Expected{Issuer: v.Issuer, AnyAudience: jwt.Audience{v.Audience}, Time: v.now()}, leeway)
	switch {
	case err != nil:
		return none, err
	case c.Expiry == nil:
		return none, errors.New("it does not expire")
	case c.Subject == "":
		return none, errors.New("it has no subject")
	case len(c.Bound) > 0 && string(c.Bound) != "null": // a thief has the token without the key
		return none, errors.New("it is bound to a key of its client, whose proof is not checked here")
	case v.Scope != "" && !slices.Contains(strings.Fields(c.Scope), v.Scope):
		return none, fmt.Errorf("it lacks the scope %s", v.Scope)
	}
	return c, nil
}

// open returns the claims of a token whose signature is right.
func (v *Verifier) open(ctx context.Context, token *jwt.JSONWebToken) (claims, error) {
	if len(token.Headers) != 1 {
		return claims{}, errors.New("it has several signatures")
	}
	head := token.Headers[0]
	if !isAccess(head.ExtraHeaders[jose.HeaderType]) {
		return claims{}, errors.New("its header typ is that of no access token")
	}
	all, err := v.keys.find(ctx, head.KeyID)
	if err != nil {
		return claims{}, err
	}
	for _, k := range all {
		if k.Algorithm != "" && k.Algorithm != head.Algorithm {
			continue
		}
		var c claims
		if token.Claims(k.Key, &c) == nil {
			return c, nil
		}
	}
	return claims{}, errors.New("no key of the issuer has signed it")
}

// isAccess reports whether a token with that header typ may be an access token (RFC 9068). Many issuers write JWT, or
// nothing. An issuer also signs tokens of other kinds, such as logout+jwt, with the same keys and for the same audience.
func isAccess(kind any) bool {
	text, ok := kind.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return kind == nil || ok && (text == "jwt" || text == "at+jwt")
}

// namespaces parses the claim with the namespaces.
func (v *Verifier) namespaces(raw json.RawMessage) ([]sandboxmcp.Namespace, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return []sandboxmcp.Namespace{v.Own}, nil
	}
	var names []string
	var text string
	if json.Unmarshal(raw, &names) != nil {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, errors.New("the claim " + NamespacesClaim + " is no list of names")
		}
		names = strings.Fields(text)
	}
	held := make([]sandboxmcp.Namespace, 0, len(names))
	for _, n := range names {
		ns, err := sandboxmcp.ParseNamespace(n)
		if err != nil {
			return nil, err
		}
		held = append(held, ns)
	}
	if len(held) == 0 {
		return nil, errors.New("the claim " + NamespacesClaim + " is empty")
	}
	return held, nil
}

// hashed is the prefix of actors whose subject is not shown.
const hashed = "sha256:"

// actor names the holder of a token in the audit record. Different subjects have different
// names.
func actor(subject string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(subject) > maxSubject || strings.HasPrefix(subject, hashed) || strings.ContainsFunc(subject, odd) {
		sum := sha256.Sum256([]byte(subject))
		subject = hashed + hex.EncodeToString(sum[:])
	}
	return "oauth " + subject
}

// MetadataPath is the path of the metadata of the MCP endpoint (RFC 9728).
const MetadataPath = "/.well-known/oauth-protected-resource"

// Challenge returns the parameters of WWW-Authenticate for a request without a valid token.
func (v *Verifier) Challenge() string {
	text := "realm=\"sandboxmcp\""
	if u, err := url.Parse(v.Resource); err == nil {
		path := u.Path
		u.Path = MetadataPath + path
		text += fmt.Sprintf(", resource_metadata=%q", u.String())
	}
	if v.Scope != "" {
		text += fmt.Sprintf(", scope=%q", v.Scope)
	}
	return text
}

// ServeHTTP answers with the metadata of the resource: clients read there which issuer to ask.
func (v *Verifier) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{
		"resource": v.Resource, "authorization_servers": []string{v.Issuer},
		"bearer_methods_supported": []string{"header"}, "resource_name": "sandboxmcp",
	}
	if v.Scope != "" {
		doc["scopes_supported"] = []string{v.Scope}
	}
	body, err := json.Marshal(doc)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
