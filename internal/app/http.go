package app

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/oauth"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// HTTPOptions are the flags of a server over HTTP.
type HTTPOptions struct {
	Five   bool   // the five tools of mcp-code-sandbox
	NoAuth bool   // callers need no key
	Unix   string // path of a unix socket to serve on instead of a port; empty: none
}

// place says where a path of the server is, for a person.
func (o HTTPOptions) place(base, path string) string {
	if o.Unix != "" {
		return cmp.Or(path, "/") + " of the unix socket " + o.Unix
	}
	return base + path
}

// ServeHTTP runs a server over HTTP until ctx ends, and a control socket for other commands.
func (a *App) ServeHTTP(ctx context.Context, cfg *config.Config, o HTTPOptions) error {
	if err := checkExposure(ctx, cfg, o); err != nil {
		return err
	}
	return a.asServer(ctx, cfg, "http", func(d front) error {
		defer controls(ctx, d)()
		d.five = o.Five
		stop, err := a.openHTTP(ctx, d, o)
		if err != nil {
			return err
		}
		defer stop()
		<-ctx.Done()
		return nil
	})
}

// checkExposure refuses an address that other machines may reach if callers need no key.
func checkExposure(ctx context.Context, cfg *config.Config, o HTTPOptions) error {
	asks := len(cfg.APIKeys) > 0 || cfg.OAuthIssuer != ""
	for _, u := range []string{cfg.OAuthIssuer, cfg.OAuthKeysURL} {
		if u == "" {
			continue
		}
		if err := oauth.CheckIssuer(u); err != nil {
			return err
		}
	}
	switch {
	case cfg.OAuthIssuer != "" && o.Unix != "" && cfg.PublicURL == "":
		return Usage("oauth_issuer on a unix socket needs public_url")
	case o.NoAuth && asks:
		return Usage("--no-auth excludes api_keys and oauth_issuer")
	case asks || o.Unix != "" || isLoopback(ctx, fileHost(cfg)):
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "other machines may reach %s, so the server needs API keys", fileHost(cfg)).
		WithHint("set api_keys (SANDBOXMCP_API_KEYS) or oauth_issuer, or listen on 127.0.0.1")
}

// isLoopback reports whether a host has loopback addresses only.
func isLoopback(ctx context.Context, host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	all, err := new(net.Resolver).LookupNetIP(ctx, "ip", host)
	for _, ip := range all {
		if !ip.Unmap().IsLoopback() {
			return false
		}
	}
	return err == nil && len(all) > 0
}

// openHTTP opens the listener and serves on it. The caller calls stop.
func (a *App) openHTTP(ctx context.Context, d front, o HTTPOptions) (stop func(), err error) {
	l, at, err := a.listenHTTP(ctx, d.cfg, o)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(cmp.Or(d.cfg.PublicURL, at), "/")
	c, metadata, err := a.doorConfig(d, o, base)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	links := server.NewLinks(d.engine.Namespace(), linkedBytes(d.cfg))
	links.Open(base)
	if !o.Five {
		a.tell("REST is at " + o.place(at, ""))
	}
	a.tell("MCP is at " + o.place(at, server.MCPPath))
	d.logger.Info("serving", "transport", "http", "version", Version(), "state", d.cfg.StateDir, "url", at)
	routes, set := a.routes(ctx, d, links, metadata)
	guard := door.New(c, routes)
	unfollow := d.now.follow(func(cfg *config.Config) {
		guard.SetRules(doorRules(cfg))
		set(cfg)
	})
	ended := listen.Serve(ctx, l, listen.Served{Handler: guard, Logger: d.logger, Connected: door.Connected})
	return func() {
		unfollow()
		ended()
	}, nil
}

// doorConfig says whom the door admits, and prints it. base is the URL of the server. metadata
// is what clients read about the OAuth issuer; nil: there is none.
func (a *App) doorConfig(d front, o HTTPOptions, base string) (c door.Config, metadata http.Handler, err error) {
	cfg := d.cfg
	c = door.Config{
		Own: d.engine.Namespace(), NoAuth: o.NoAuth, Names: names(cfg), Rules: doorRules(cfg),
		Open: needsNoKey, Logger: d.logger,
	}
	if cfg.OAuthIssuer != "" {
		v := oauth.New(oauth.Config{
			Issuer: cfg.OAuthIssuer, Resource: base + server.MCPPath, Audience: cfg.OAuthAudience, KeysURL: cfg.OAuthKeysURL,
			Scope: cfg.OAuthScope, Own: c.Own,
		})
		c.Tokens, metadata = v, v
		a.tell("callers need a token of " + cfg.OAuthIssuer)
	}
	switch {
	case len(c.Keys) > 0:
		a.tell("callers need one of the configured API keys")
	case c.Tokens != nil:
	case c.NoAuth:
		a.tell("warning: callers need no key, so every user of this machine can run code on this server")
	default:
		var file string
		if c.Local, file, err = door.LocalKey(cfg.StateDir); err != nil {
			return c, nil, err
		}
		if runtime.GOOS == "linux" {
			a.tell("programs of your user need no key; others need the one in " + file)
		} else {
			a.tell("callers need the key in " + file)
		}
	}
	return c, metadata, nil
}

// doorRules returns what the settings say to the door, and may change while it is open.
func doorRules(cfg *config.Config) door.Rules {
	r := door.Rules{Origins: origins(cfg), Rate: cfg.APIRate}
	for _, k := range cfg.APIKeys {
		r.Keys = append(r.Keys, door.Key{Secret: k.Key, Namespaces: k.Namespaces, Operator: k.Operator})
	}
	return r
}

// listenHTTP opens the port, or the unix socket. url is the base URL of the port; empty: a unix
// socket has none.
func (a *App) listenHTTP(ctx context.Context, cfg *config.Config, o HTTPOptions) (l net.Listener, at string, err error) {
	if o.Unix != "" {
		l, err = listen.Unix(ctx, o.Unix)
		return l, "", err
	}
	port, chosen := cfg.Port()
	opened, err := listen.Open(ctx, listen.Config{Host: fileHost(cfg), Port: port, PortSet: chosen})
	if err != nil {
		return nil, "", err
	}
	if opened.Note != "" {
		a.tell(opened.Note)
	}
	return opened, opened.URL, nil
}

// names returns the host names of the server beside its addresses.
func names(cfg *config.Config) []string {
	all := []string{fileHost(cfg)}
	if u, err := url.Parse(cfg.PublicURL); err == nil && u.Hostname() != "" {
		all = append(all, u.Hostname())
	}
	return all
}

// wellKnown begins paths that describe a server to clients.
const wellKnown = "/.well-known/"

// origins returns the origins of web pages that may call the server: those of the settings,
// and its own behind a proxy with TLS.
func origins(cfg *config.Config) []string {
	all := slices.Clone(cfg.CORSOrigins)
	if u, err := url.Parse(cfg.PublicURL); err == nil && u.Host != "" {
		all = append(all, u.Scheme+"://"+u.Host)
	}
	return all
}

// needsNoKey reports whether a request is allowed without a key. It then asks for the health of the
// server, for metadata for clients, or for a file by a signed link.
func needsNoKey(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return api.Open(r) || strings.HasPrefix(r.URL.Path, wellKnown) || strings.HasPrefix(r.URL.Path, server.FilesPath) && r.URL.Query().Has("sig")
}

// routes returns the handler of everything that is served over HTTP, behind the door. The server
// of mcp-code-sandbox has no REST. set puts settings that were read again into force.
func (a *App) routes(ctx context.Context, d front, links *server.Links, metadata http.Handler) (h http.Handler, set func(*config.Config)) {
	c := a.serverConfig(ctx, d, opened(links))
	c.HTTP = true
	s := server.New(c)
	mcp := s.HTTP(ctx)
	files := server.Files(server.FilesConfig{Engine: d.engine, Links: links, Names: names(d.cfg), Logger: d.logger})
	rest := files
	if !d.five {
		rest = api.HTTP(ctx, api.HTTPConfig{Service: d.forCallers(), Logger: d.logger, Version: Version(), Identify: identified, Link: c.Link, Invocation: a.invocation(a.loaded)})
	}
	set = func(cfg *config.Config) {
		s.SetRules(rules(ctx, d, cfg))
		links.SetMost(linkedBytes(cfg))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case server.IsMCP(path):
			mcp.ServeHTTP(w, r)
		case metadata != nil && (path == oauth.MetadataPath || path == oauth.MetadataPath+server.MCPPath):
			metadata.ServeHTTP(w, r)
		case strings.HasPrefix(path, server.FilesPath):
			files.ServeHTTP(w, r)
		default:
			rest.ServeHTTP(w, r)
		}
	}), set
}

// identified returns the identity that the door has found.
func identified(r *http.Request) (sandboxmcp.Identity, error) {
	id, ok := door.IdentityOf(r.Context())
	if !ok {
		return id, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the request has no key")
	}
	return id, nil
}
