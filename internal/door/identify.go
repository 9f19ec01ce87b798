package door

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Actor is the actor of callers without a key of the operator in the audit record.
const Actor = "http"

// tenantHeader selects one of the caller's namespaces.
const tenantHeader = "X-Tenant-Id"

// peer is the holder of a key or of a token, or stands for the callers without one.
type peer struct {
	sandboxmcp.Identity

	valid  context.Context //nolint:containedctx // ends when the key is revoked
	revoke context.CancelFunc
	until  time.Time // of a token, which has neither; zero: a key
}

// tokenGrace is how long a request goes on after its token has expired. It lets a client
// get the result of its run, and ends streams of events, which would not end by themselves.
const tokenGrace = 10 * time.Minute

func newPeer(id sandboxmcp.Identity) *peer {
	p := &peer{Identity: id}
	p.valid, p.revoke = context.WithCancel(context.Background()) //nolint:forbidigo // the key outlives every request
	return p
}

// hold returns a context of a request of the peer, which ends when its key is revoked, or some time
// after its token has expired. The caller calls release.
func (p *peer) hold(parent context.Context) (ctx context.Context, release func()) {
	if !p.until.IsZero() {
		return context.WithDeadline(parent, p.until)
	}
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(p.valid, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// peers are the holders of keys, by the SHA-256 of the key. A lookup by hash takes the
// same time for every wrong key.
type peers map[[sha256.Size]byte]*peer

// adopt takes over the holders of keys that have not changed, neither in rights nor in place. It
// returns the others.
func (p peers) adopt(before peers) (gone []*peer) {
	for hash, was := range before {
		if is := p[hash]; is != nil && is.Every == was.Every && is.Actor == was.Actor && slices.Equal(is.Namespaces, was.Namespaces) {
			p[hash] = was
		} else {
			gone = append(gone, was)
		}
	}
	return gone
}

func newPeers(ns sandboxmcp.Namespace, keys []Key, local sandboxmcp.Secret) peers {
	p := peers{}
	own := []sandboxmcp.Namespace{ns}
	for i, k := range keys {
		id := sandboxmcp.Identity{Namespaces: k.Namespaces, Every: k.Operator, Actor: sandboxmcp.KeyActor(i + 1)}
		if len(id.Namespaces) == 0 {
			id.Namespaces = own
		}
		p[sha256.Sum256([]byte(k.Secret.Reveal()))] = newPeer(id)
	}
	if secret := local.Reveal(); secret != "" && len(keys) == 0 {
		p[sha256.Sum256([]byte(secret))] = newPeer(sandboxmcp.Identity{Namespaces: own, Actor: Actor})
	}
	return p
}

// Principal names the caller behind an identity. Two requests of one caller have the same,
// whichever of its namespaces they select.
func Principal(id sandboxmcp.Identity) string {
	if id.Every {
		return id.Actor
	}
	names := make([]string, 0, len(id.Namespaces))
	for _, n := range id.Namespaces {
		names = append(names, string(n))
	}
	slices.Sort(names)
	return id.Actor + "\x00" + strings.Join(names, "\x00")
}

// Alone reports whether an identity is the one that all clients without a key or token share. If the server
// lets such clients in, it has no other caller.
func Alone(id sandboxmcp.Identity) bool { return id.Actor == Actor }

// identify returns the identity of a request's caller, with the namespace first that the
// request selects, and the holder of its key or token.
func (d *Door) identify(r *http.Request, rules *rules) (sandboxmcp.Identity, *peer, error) {
	id, held, err := d.caller(r, rules)
	if err != nil {
		return sandboxmcp.Identity{}, nil, err
	}
	asked := r.Header.Values(tenantHeader)
	if len(asked) == 0 {
		return id, held, nil
	}
	ns := sandboxmcp.Namespace(asked[0])
	if len(asked) > 1 || !holds(id, ns) {
		return sandboxmcp.Identity{}, nil, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "namespace %s of %s is not yours", sandboxmcp.Quote(strings.Join(asked, ", ")), tenantHeader).
			WithHint("leave " + tenantHeader + " out, or name a namespace of the key")
	}
	others := slices.DeleteFunc(slices.Clone(id.Namespaces), func(n sandboxmcp.Namespace) bool { return n == ns })
	id.Namespaces = append([]sandboxmcp.Namespace{ns}, others...)
	return id, held, nil
}

// holds reports whether an identity may select a namespace, which is written as it is.
func holds(id sandboxmcp.Identity, ns sandboxmcp.Namespace) bool {
	_, err := sandboxmcp.ParseNamespace(string(ns))
	return slices.Contains(id.Namespaces, ns) || id.Every && err == nil
}

// caller returns the identity that a request proves.
func (d *Door) caller(r *http.Request, rules *rules) (sandboxmcp.Identity, *peer, error) {
	own := sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{d.Own}, Actor: Actor}
	if d.NoAuth && len(rules.Keys) == 0 {
		return own, rules.keyless, nil
	}
	secret, given, err := credential(r)
	if err != nil {
		return own, nil, err
	}
	// Without keys, callers are programs of the server's user, and those to whom that user gives the key file.
	ours := len(rules.Keys) == 0 && d.Tokens == nil && Direct(r) && fromOwnUser(r.Context())
	switch {
	case given:
		id, held, err := d.holder(r, secret, rules)
		id.Forms = err == nil && ours
		return id, held, err
	case ours:
		own.Forms = true
		return own, rules.keyless, nil
	}
	return own, nil, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the request has no key").
		WithHint("send the header X-API-Key, or Authorization: Bearer")
}

// holder returns the identity of a key or a token.
func (d *Door) holder(r *http.Request, secret string, rules *rules) (sandboxmcp.Identity, *peer, error) {
	if p := rules.peers[sha256.Sum256([]byte(secret))]; p != nil {
		return p.Identity, p, nil
	}
	if d.Tokens != nil {
		id, expires, err := d.Tokens.Verify(r.Context(), secret)
		if err == nil {
			return id, &peer{Identity: id, until: expires.Add(tokenGrace)}, nil
		}
		d.Logger.Debug("token refused", "error", err)
	}
	if err := d.missed.wrong(r.RemoteAddr); err != nil {
		return sandboxmcp.Identity{}, nil, err
	}
	return sandboxmcp.Identity{}, nil, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the key or token is not valid").
		WithHint("check the key, or get a new token")
}

// credential returns the key or token of a request.
func credential(r *http.Request) (secret string, given bool, err error) {
	keys, tokens := r.Header.Values("X-API-Key"), r.Header.Values("Authorization")
	switch {
	case len(keys) > 1 || len(tokens) > 1:
		return "", true, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the request has several keys").WithHint("send one")
	case len(keys) == 1:
		return keys[0], true, nil
	case len(tokens) == 0:
		return "", false, nil
	}
	scheme, secret, _ := strings.Cut(strings.TrimSpace(tokens[0]), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", true, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the scheme of Authorization is not Bearer").
			WithHint("send Authorization: Bearer, or the header X-API-Key")
	}
	return strings.TrimSpace(secret), true, nil
}

// challenge is the header WWW-Authenticate.
func (d *Door) challenge() string {
	if d.Tokens != nil {
		return "Bearer " + d.Tokens.Challenge()
	}
	return `Bearer realm="sandboxmcp"`
}
