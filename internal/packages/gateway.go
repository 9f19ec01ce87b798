package packages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// Bounds of one gateway.
const (
	maxFetches  = 5000 // requests to indexes
	maxParallel = 6    // of them at once
	maxProjects = 2000
	maxServed   = 50_000 // requests of the resolver

	maxDocuments = 512 << 20 // bytes of all documents, of which a part is kept in memory
	maxFiles     = 32 << 30  // bytes of all wheels and tarballs, each time that one is read

	installTime = 30 * time.Minute // for everything
)

// Open makes a gateway for one order. It applies the policy to the names in the order first,
// so that a package that is denied, or that a person has to allow, fails before anything is
// fetched. What the packages depend on is known only after it was listed: persons are asked for all of
// it at once, before it is installed. The caller tries [Gateway.Direct] first. If that returns false, it runs a resolver
// behind the gateway as [Gateway.Resolver] describes, and then [Gateway.Install]. It closes the
// gateway. Requests that the gateway serves end with ctx.
func (p *Packages) Open(ctx context.Context, o Order) (*Gateway, error) {
	ask := newAsking(p.policy(), o)
	if err := ask.all(ctx, o.names()); err != nil {
		return nil, err
	}
	c, err := readClient(o.Language, p.env, p.cfg.Home, p.cfg.Changeable)
	if err != nil {
		return nil, err
	}
	n, err := newNetwork(c, p.cfg)
	if err != nil {
		return nil, err
	}
	if err := p.makeDirs(); err != nil {
		return nil, err
	}
	g := &Gateway{
		p: p, order: o, ask: ask, client: c, net: n, turns: make(chan struct{}, maxParallel),
		projects: map[string]*lazyProject{}, rejected: map[string][]rejection{}, missing: map[string]bool{},
	}
	g.ctx, g.cancel = context.WithTimeout(ctx, installTime)
	return g, nil
}

// Gateway is the package index that one resolver in a sandbox sees. Its methods may be called
// concurrently.
type Gateway struct {
	p      *Packages
	order  Order
	ask    *asking
	client *client
	net    *network
	ctx    context.Context //nolint:containedctx // ends with Close; documents outlive the request that asked first
	cancel context.CancelFunc

	turns   chan struct{}
	fetches atomic.Int64
	served  atomic.Int64
	read    atomic.Int64 // bytes of documents
	kept    atomic.Int64 // files and versions that documents have listed
	files   atomic.Int64 // bytes of files
	fresh   atomic.Int64 // bytes of files that were fetched since the cache was pruned

	mu       sync.Mutex
	projects map[string]*lazyProject
	rejected map[string][]rejection
	missing  map[string]bool // names that no index has
	fault    error           // the first failure that is no fault of the resolver

	rejections int // in rejected
}

// lazyProject is a package that is listed once.
type lazyProject struct {
	once sync.Once
	pr   *project
	err  error
}

// rejection is a version that the gateway left out; an empty version means all of them.
type rejection struct {
	version, reason string
	hard            bool // it explains a failure by itself
}

// project lists a package: it applies the policy and asks the index, once for each name.
func (g *Gateway) project(name string) (*project, error) {
	g.mu.Lock()
	l := g.projects[name]
	if l == nil {
		if len(g.projects) >= maxProjects {
			g.mu.Unlock()
			return nil, tooMuch("packages", maxProjects)
		}
		l = &lazyProject{}
		g.projects[name] = l
	}
	g.mu.Unlock()
	l.once.Do(func() {
		if l.err = g.ask.possible(name); l.err != nil {
			g.reject(name, "", sandboxmcp.AsError(l.err).Message, true)
			return
		}
		fetch := g.fetchPython
		if g.order.Language == sandboxmcp.Node {
			fetch = g.fetchNode
		}
		if l.pr, l.err = fetch(g.ctx, name); errors.Is(l.err, errNotListed) {
			g.mu.Lock()
			g.missing[name] = true
			g.mu.Unlock()
		}
	})
	return l.pr, l.err
}

func cancelled() *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the installation was cancelled")
}

func tooMuch(what string, most int) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the installation needs more than %d %s", most, what).
		WithHint("install fewer packages at once, or pin versions")
}

// turn waits until a request may be sent to an index.
func (g *Gateway) turn(ctx context.Context) (release func(), err error) {
	if g.fetches.Add(1) > maxFetches {
		return nil, tooMuch("requests", maxFetches)
	}
	select {
	case g.turns <- struct{}{}:
		return func() { <-g.turns }, nil
	case <-ctx.Done():
		return nil, cancelled().WithCause(context.Cause(ctx))
	}
}

// maxRejections bounds the rejected versions that are remembered for a package, and maxRejected those of all packages that were
// not asked for by name. maxTold bounds the rejections of all packages that a caller is told of.
const (
	maxRejections = 5000
	maxRejected   = 20 * maxRejections
	maxTold       = 200
)

func (g *Gateway) reject(name, version, reason string, hard bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rejections >= maxRejected && !hard && !g.direct(name) {
		return
	}
	r := rejection{version, reason, hard}
	if old := g.rejected[name]; len(old) < maxRejections && !slices.Contains(old, r) {
		g.rejected[name] = append(old, r)
		g.rejections++
	}
}

// unfit rejects a file because of its content.
func (g *Gateway) unfit(f file, why string) error {
	g.reject(f.pkg, f.version, why, true)
	return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s %s is refused: %s", f.pkg, f.version, why).
		WithHint("use another version or package").With("package", f.pkg)
}

func (g *Gateway) note(e Event) {
	if g.order.Note != nil {
		g.order.Note(e)
	}
}

// Resolver describes how a resolver is started behind a gateway, in an empty working
// directory that it may write to, without any other network.
type Resolver struct {
	Args   []string          // arguments of pip (for `python -I -m pip`) or of npm
	Env    map[string]string // environment, which replaces every setting of pip or npm
	Files  map[string]string // files that must be in the working directory, by name
	Output string            // the file in the working directory with the result, for Install
}

// Resolver returns how the resolver is started. base is the URL under which the sandbox
// reaches the gateway, such as http://127.0.0.1:8080. pip must be of version 22.2 or newer.
func (g *Gateway) Resolver(base string) Resolver {
	base = strings.TrimRight(base, "/")
	var specs []string
	for _, s := range g.order.Specs {
		specs = append(specs, s.text(g.order.Language))
	}
	if g.order.Language == sandboxmcp.Node {
		return Resolver{
			Args: append([]string{
				"install", "--package-lock-only", "--ignore-scripts", "--lockfile-version=3", "--no-audit", "--no-fund", "--no-save=false", "--loglevel=error", "--",
			}, specs...),
			Env: map[string]string{
				"npm_config_registry": base + "/", "npm_config_userconfig": "/dev/null", "npm_config_globalconfig": "/nonexistent/npmrc", "npm_config_update_notifier": "false",
				"npm_config_fetch_retries": "0", "npm_config_fetch_timeout": "900000", "npm_config_progress": "false", "npm_config_color": "false", "npm_config_replace_registry_host": "always",
				"npm_config_noproxy": "*", "npm_config_logs_max": "0", "npm_config_git": "/nonexistent/git",
			},
			Files:  map[string]string{"package.json": `{"name":"sandbox","version":"0.0.0","private":true}` + "\n"},
			Output: "package-lock.json",
		}
	}
	return Resolver{
		Args: append([]string{
			"--isolated", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--index-url", base + "/simple/", "--report", "report.json",
			"--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "0", "--timeout", "900", "--", // a file is sent when all of it was verified
		}, specs...),
		Env:    map[string]string{"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INPUT": "1", "PIP_NO_COLOR": "1", "no_proxy": "*"},
		Output: "report.json",
	}
}

// ServeHTTP implements [http.Handler]: the index for the resolver.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	var err error
	serve := g.servePython
	if g.order.Language == sandboxmcp.Node {
		serve = g.serveNode
	}
	if g.ctx.Err() != nil {
		err = cancelled()
	} else if g.served.Add(1) > maxServed {
		err = tooMuch("requests", maxServed)
	}
	if err == nil {
		err = serve(w, r)
	}
	if err == nil || r.Context().Err() != nil {
		return
	}
	if errors.Is(err, errNotListed) {
		writeError(w, http.StatusNotFound, "the package index does not have it")
		return
	}
	e := sandboxmcp.AsError(err)
	g.fail(e)
	status := http.StatusBadGateway
	if e.Code == sandboxmcp.CodePackageRejected || e.Code == sandboxmcp.CodeApprovalPending || e.Code == sandboxmcp.CodeBlockedAddress {
		status = http.StatusForbidden
	}
	writeError(w, status, e.Message)
}

// writeError answers in the form that npm shows to its user.
func writeError(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}

// fail remembers the first failure.
func (g *Gateway) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fault == nil {
		g.fault = err
	}
}

// serveFile serves a wheel or tarball, after it was verified.
func (g *Gateway) serveFile(w http.ResponseWriter, r *http.Request, f file) error {
	b, err := g.fetchBlob(g.ctx, f)
	if err != nil {
		return err
	}
	defer b.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, b)
	return nil
}

// What resolvers print about a package that they do not find.
var notFound = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`(?:No matching distribution found for|Could not find a version that satisfies the requirement) ([A-Za-z0-9._-]+)`),
		regexp.MustCompile(`(?:No matching version found for|notarget|404 Not Found[^\n]*/) ?((?:@[^@/\s]+(?:/|%2f))?[A-Za-z0-9._~-]+)`),
		regexp.MustCompile(`'((?:@[^@/\s']+/)?[A-Za-z0-9._~-]+)@[^']*' is not in`),
	}
})

// Failure returns the error of a resolution that failed. said is what the resolver printed. If
// a person has to allow a package, it is the error of Order.Ask. Otherwise it is
// package_rejected if the gateway left something out that explains it, cancelled, or else
// install_failed with the resolver's reason, shortened. The field "rejected" of the error
// has the value of [Gateway.Rejected].
func (g *Gateway) Failure(ctx context.Context, said string) error {
	if ctx.Err() != nil {
		return cancelled().WithCause(context.Cause(ctx))
	}
	if errors.Is(g.ctx.Err(), context.DeadlineExceeded) {
		return g.withRejected(sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the installation took more than %s", installTime).
			WithHint("install fewer packages at once, or later"))
	}
	g.mu.Lock()
	fault := g.fault
	g.mu.Unlock()
	if fault != nil {
		return g.withRejected(sandboxmcp.AsError(fault))
	}
	for _, form := range notFound() {
		for _, m := range form.FindAllStringSubmatch(said, 20) {
			name := strings.ReplaceAll(m[1], "%2f", "/")
			if g.order.Language == sandboxmcp.Python {
				name = environment.Normal(name)
			}
			if err := g.explain(name, said); err != nil {
				return g.withRejected(err)
			}
		}
	}
	tool := "pip"
	if g.order.Language == sandboxmcp.Node {
		tool = "npm"
	}
	// Quoted, because it contains words of the packages, and a model reads it.
	return g.withRejected(sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the packages could not be resolved; %s said %q", tool, gist(said)).
		WithHint("ask for other versions, or check the names"))
}

func (g *Gateway) withRejected(e *sandboxmcp.Error) error {
	c := *e
	c.Fields = maps.Clone(e.Fields)
	return (&c).With("rejected", g.Rejected())
}

// offered is the list of versions that pip prints.
var offered = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\(from versions: ([^)]*)\)`) })

// explain returns why the resolver did not find a package that fits, or nil.
func (g *Gateway) explain(name, said string) *sandboxmcp.Error {
	g.mu.Lock()
	missing, l := g.missing[name], g.projects[name]
	g.mu.Unlock()
	if missing {
		e := sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index has no %s", name).WithHint("check the name").With("package", name)
		if other := comesWith(g.order.Language, name); other != "" {
			return e.WithHint(other)
		}
		if near := resembles(g.order.Language, name); near != "" {
			e = e.WithHint("did you mean " + near + "?")
		}
		return e
	}
	for _, r := range g.Rejected() {
		if r.Name == name {
			return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s cannot be installed: %s", name, r.Reason).
				WithHint(cmp.Or(comesWith(g.order.Language, name), "use another version or package")).With("package", name)
		}
	}
	if l == nil || l.pr == nil {
		return nil
	}
	newest := ""
	if l.pr.npm != nil {
		newest = l.pr.npm.Tags["latest"]
	} else if m := offered().FindStringSubmatch(said); m != nil {
		newest = clean(m[1][strings.LastIndexByte(m[1], ' ')+1:])
	}
	if newest == "none" {
		g.reject(name, "", "it has no wheel for this Python and platform", true)
		return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s has no wheel for this Python (%s) and platform", name, g.order.Runtime).
			WithHint(cmp.Or(comesWith(g.order.Language, name), "use another package; source is not built, because that would run its code")).With("package", name)
	}
	e := sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "no version of %s fits what was asked for", name).With("package", name)
	if newest != "" {
		e = e.WithHint("the newest version is " + newest)
	}
	return e
}

// Rejected returns what the gateway did not offer, and why, sorted by name. A package that was
// installed may be in it with versions that were left out.
func (g *Gateway) Rejected() []Rejected {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := []Rejected{}
	for _, name := range slices.Sorted(maps.Keys(g.rejected)) {
		offered := map[string]bool{}
		if l := g.projects[name]; l != nil && l.pr != nil {
			for _, f := range l.pr.files {
				offered[f.version] = true
			}
			if l.pr.npm != nil {
				for v := range l.pr.npm.Versions {
					offered[v] = true
				}
			}
		}
		byReason := map[string][]string{}
		var reasons []string
		for _, r := range g.rejected[name] {
			if !r.hard && (offered[r.version] || len(offered) > 0 && !g.wanted(name, r.version)) {
				continue
			}
			if _, ok := byReason[r.reason]; !ok {
				reasons = append(reasons, r.reason)
			}
			if v := byReason[r.reason]; r.version != "" && !slices.Contains(v, r.version) {
				v = append(v, r.version)
				byReason[r.reason] = v
			} else if v == nil {
				byReason[r.reason] = []string{}
			}
		}
		for _, reason := range reasons[:min(len(reasons), maxTold-len(all))] {
			all = append(all, Rejected{Name: name, Reason: versionsText(byReason[reason]) + reason})
		}
	}
	return all
}

// direct reports whether a spec names a package.
func (g *Gateway) direct(name string) bool {
	return slices.ContainsFunc(g.order.Specs, func(s Spec) bool { return s.Name == name })
}

// wanted reports whether a spec asks for exactly a version that was left out.
func (g *Gateway) wanted(name, version string) bool {
	for _, s := range g.order.Specs {
		if s.Name == name && s.exact(g.order.Language) && strings.TrimLeft(s.Versions, "=") == version {
			return true
		}
	}
	return false
}

func versionsText(versions []string) string {
	const most = 3
	switch n := len(versions); {
	case n == 0:
		return ""
	case n <= most:
		return strings.Join(versions, ", ") + ": "
	default:
		return strings.Join(versions[n-most:], ", ") + " and " + strconv.Itoa(n-most) + " more: "
	}
}

// Hosts returns the hosts that the gateway has asked, sorted. They are for the record.
func (g *Gateway) Hosts() []string { return g.net.asked() }

// Close ends requests that the gateway still serves, and removes the oldest files of the cache if
// it is too large, also after a failure. It may be called twice.
func (g *Gateway) Close() error {
	g.cancel()
	g.net.close()
	if g.files.Swap(0)+g.read.Swap(0) > 0 {
		g.p.prune()
	}
	return nil
}

const maxGist = 400

// npmNoise matches lines of npm that say nothing about the failure.
var npmNoise = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:code |errno |syscall |A complete log|Log files|notarget In most|404 Note|.*eresolve-report)`)
})

// gist returns what a resolver printed in one line: its errors, or else its last line.
func gist(text string) string {
	var said []string
	last := ""
	for line := range strings.Lines(text) {
		if line = oneLine(line); line == "" {
			continue
		}
		last = line
		rest, ok := strings.CutPrefix(line, "ERROR: ")
		if !ok {
			if rest, ok = strings.CutPrefix(line, "npm error "); ok && npmNoise().MatchString(rest) {
				continue
			}
		}
		if ok {
			said = append(said, rest)
		}
	}
	if len(said) == 0 {
		said = []string{last}
	}
	s := strings.Join(said, "; ")
	if len(s) > maxGist {
		s = strings.ToValidUTF8(s[:maxGist], "") + "…"
	}
	return s
}

// oneLine returns a line without control characters and backquotes.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '`' { // the product's messages use backquotes for its own commands
			return '\''
		}
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}
