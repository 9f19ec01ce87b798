package engine

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/resolver"
)

// openPackages makes the part that installs packages. It connects to nothing.
func (e *Engine) openPackages() {
	c := e.cfg
	e.packages = packages.New(packages.Config{
		Dir: packages.Dir(e.store.Dir()), Policy: packagePolicy(c.Packages, c.PackagesAllow, c.PackagesDeny, c.PackagesMinAge), Env: c.ClientEnv, Home: lookup(c.ClientEnv, "HOME"), Version: c.Version, Logger: e.log, Spare: e.store.Spare, Now: c.Now,
		Owners:     func(ctx context.Context) (map[string][]string, error) { return e.kept.Owners(ctx) },
		Changeable: c.changeable(),
	})
	e.kept = installed.New(installed.Config{Store: e.store, Record: e.record, Key: e.key.Derive, Now: c.Now, Logger: e.log})
	e.openPackageGate()
}

// packagePolicy returns the policy of the settings. If only some packages are allowed, all others
// are denied.
func packagePolicy(rest string, allow, deny []string, minAge time.Duration) packages.Policy {
	p := packages.Policy{Default: packages.Decision(rest), Allow: allow, Deny: deny, MinAge: minAge}
	if p.Default == packages.Allow && len(allow) > 0 {
		p.Default = packages.Deny
	}
	return p
}

// lookup returns a variable of a list of KEY=value.
func lookup(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// installation is one request for packages.
type installation struct {
	who      sandboxmcp.Caller
	language sandboxmcp.Language
	backend  string
	names    []string // as they were asked for
	specs    []packages.Spec
	session  sandboxmcp.SessionID // empty: none
	request  sandboxmcp.RequestID // run that asked for them; empty: none
	note     func(text string)    // may be nil
	beside   bool                 // a run waits for it
	leave    func()               // gives the place in a queue back; nil: it has none

	tree     packages.Tree
	listed   bool // the entry of the record names its packages, and they are many
	warnings []string
	rejected []packages.Rejected
	hosts    []string // that were asked
}

// parse checks what was asked for, before anything is fetched.
func (e *Engine) parse(ctx context.Context, i *installation) (err error) {
	if i.language, err = sandboxmcp.ParseLanguage(string(i.language)); err != nil {
		return sandboxmcp.AsError(err).WithHint("use python or node")
	}
	if i.specs, err = packages.Parse(i.language, i.names); err != nil {
		return err
	}
	masks, err := e.masks(ctx, i.who.Namespace, i.session) // programs of the session ask, too
	if err != nil {
		return err
	}
	return masks.Plain("the name of a package", strings.Join(i.names, " "))
}

// Install installs packages into a live session, or for all later runs of the namespace. pip or
// npm chooses the versions in a sandbox that reaches the package indexes of this machine and
// nothing else. No code of a package runs. It fails with package_rejected if the name, the
// policy or the form of a package excludes it, and with install_failed if the index or the
// resolver does.
func (e *Engine) Install(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.InstallAsk) (sandboxmcp.Installation, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.Installation{}, err
	}
	return e.install(ctx, &installation{who: c, language: ask.Language, backend: e.cfg.DefaultBackend, names: ask.Packages, session: ask.SessionID, note: ask.Note})
}

// install carries out an installation.
func (e *Engine) install(ctx context.Context, i *installation) (_ sandboxmcp.Installation, err error) {
	if err = e.parse(ctx, i); err != nil {
		return sandboxmcp.Installation{}, err
	}
	var live *liveSession
	if i.session != "" {
		if live, i.backend, err = e.roomOf(ctx, i.who.Namespace, i.session); err != nil {
			return sandboxmcp.Installation{}, err
		}
	}
	if len(i.specs) == 0 {
		return sandboxmcp.Installation{Success: true, Output: "No packages to install", Installed: []sandboxmcp.InstalledPackage{}, Rejected: []sandboxmcp.RejectedPackage{}}, nil
	}
	began := e.cfg.Now()
	defer i.rest()
	if err = e.obtain(ctx, i); err == nil {
		err = e.handOver(ctx, i, live, began)
	}
	if err != nil {
		return sandboxmcp.Installation{}, e.installFailed(ctx, i, began, err)
	}
	return i.answer(), nil
}

// roomOf returns a live session and its backend.
func (e *Engine) roomOf(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (*liveSession, string, error) {
	if _, err := sandboxmcp.ParseSessionID(string(id)); err != nil {
		return nil, "", err
	}
	s, err := e.sessions.Find(ctx, ns, id)
	if err != nil {
		return nil, "", err
	}
	live, ok := s.Room().(*liveSession)
	if !ok {
		return nil, "", sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s is gone", sandboxmcp.Quote(string(id)))
	}
	return live, s.Info().Backend, nil
}

// say reports progress to the caller.
func (i *installation) say(text string) {
	if i.note != nil {
		i.note(text)
	}
}

// short names the packages, if they are few.
func (i *installation) short() string {
	if len(i.names) > 5 {
		return strconv.Itoa(len(i.names)) + " packages"
	}
	return strings.Join(i.names, ", ")
}

// enter waits for a place in a queue, after it has given back the one that the installation has.
func (i *installation) enter(ctx context.Context, q *queue.Queue) (err error) {
	i.rest()
	i.leave, err = inTurn(ctx, q, i.who)
	return err
}

// rest gives the installation's place in a queue back.
func (i *installation) rest() {
	if i.leave != nil {
		i.leave()
		i.leave = nil
	}
}

// obtain finds or makes the tree of an installation. The installation then has a place in a queue, because its list of
// packages takes memory until it is recorded and answered. The caller calls rest, also after an error.
func (e *Engine) obtain(ctx context.Context, i *installation) error {
	interp, err := e.backends[i.backend].Interpreter(ctx, i.language)
	if err != nil {
		return err
	}
	order := packages.Order{Target: target(interp), Specs: i.specs, Ask: e.asker(i), Note: func(ev packages.Event) { i.say(ev.Text) }}
	if i.language == sandboxmcp.Python {
		order.Compile = func(ctx context.Context, dir string) error { return e.compile(ctx, i, dir) }
	}
	i.warnings = order.Warnings()
	if err = i.enter(ctx, e.recalls); err != nil {
		return err
	}
	tree, known, err := e.packages.Known(ctx, order)
	if known || err != nil {
		i.tree = tree
		return err
	}
	turns := e.installs
	if i.beside { // a run holds its place while it waits for this one; installations in e.installs may wait for that place
		turns = e.cellInstalls
	}
	i.say("looking for " + i.short())
	if err = i.enter(ctx, turns); err != nil {
		return err
	}
	if _, err = e.audit.Append(ctx, *i.intent()); err != nil { // if this cannot be recorded, no package index is asked
		return err
	}
	g, err := e.packages.Open(ctx, order)
	if err != nil {
		return err
	}
	defer g.Close()
	i.tree, err = e.choose(ctx, i, g)
	i.rejected, i.hosts = g.Rejected(), g.Hosts()
	return err
}

// choose makes the tree of an installation that is not stored yet. If versions have to be chosen, pip or npm chooses
// them.
func (e *Engine) choose(ctx context.Context, i *installation, g *packages.Gateway) (packages.Tree, error) {
	if t, ok, err := g.Direct(ctx); ok || err != nil {
		return t, err
	}
	i.say("choosing versions that fit together")
	output, said, err := e.resolve(ctx, i, g)
	switch {
	case err != nil:
		return packages.Tree{}, err
	case output == nil:
		return packages.Tree{}, g.Failure(ctx, said)
	}
	return g.Install(ctx, output)
}

// target describes the interpreter that packages are for.
func target(i backend.Interpreter) packages.Target {
	t := packages.Target{Language: i.Language, Platform: platform()}
	if i.Language == sandboxmcp.Python {
		t.Runtime = environment.Python{Path: i.Path, Version: i.Version}.Tag()
		return t
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(i.Version, "v"), ".")
	t.Runtime = "node" + major
	return t
}

// platform returns the platform of this machine in Node's words.
func platform() string {
	arch := map[string]string{"amd64": "x64", "386": "ia32"}[runtime.GOARCH]
	p := runtime.GOOS + "-" + cmp.Or(arch, runtime.GOARCH)
	if runtime.GOOS != "linux" {
		return p
	}
	for _, loader := range []string{"/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"} {
		if _, err := os.Stat(loader); err == nil {
			if _, err := os.Stat("/etc/alpine-release"); err == nil {
				return p + "-musl"
			}
		}
	}
	return p + "-glibc"
}

// Bounds of pip and npm in their sandbox.
const (
	resolveSeconds = 300
	resolveMemory  = 1024 // MiB
	maxResolved    = 32 << 20
	maxSaid        = 64 << 10
)

// resolve runs pip or npm behind a gateway. It returns the file that describes the chosen
// packages; nil: it failed, and said is what it printed.
func (e *Engine) resolve(ctx context.Context, i *installation, g *packages.Gateway) (output []byte, said string, err error) {
	how := g.Resolver(gateway.AnswerURL)
	text, stdin, err := resolver.Program(i.language, resolver.Run{Args: how.Args, Env: how.Env, Files: how.Files})
	if err != nil {
		return nil, "", err
	}
	res, err := e.help(ctx, i.who, helper{
		language: i.language, program: text, stdin: stdin, backend: i.backend, network: g, bare: true, beside: i.beside,
		limits: sandboxmcp.Limits{TimeoutSeconds: resolveSeconds, MaxRAMMB: resolveMemory, MaxOutputBytes: maxSaid},
		after: func(ctx context.Context, files backend.Files) (err error) {
			output, err = readFile(ctx, files, how.Output, maxResolved)
			return err
		},
	})
	switch {
	case err != nil:
		return nil, "", err
	case res.Status == sandboxmcp.StatusCancelled:
		return nil, "", cancelledError(ctx)
	case res.ExitCode == resolver.NoNpm && i.language == sandboxmcp.Node:
		return nil, "", sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "npm is not beside this machine's node, and it chooses the versions of packages").
			WithHint("install npm, for example with `apt install npm`")
	case !res.Success:
		return nil, res.Stderr + res.Stdout, nil
	case output == nil:
		return nil, "the resolver has chosen nothing\n" + res.Stderr, nil
	}
	return output, "", nil
}

// readFile reads a file of a working directory; nil: it is not there.
func readFile(ctx context.Context, files backend.Files, name string, limit int64) ([]byte, error) {
	f, err := files.Open(ctx, name)
	if err != nil {
		return nil, nil //nolint:nilerr // what the program printed says why
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the list of chosen packages is larger than %d MiB", limit>>20)
	}
	return data, err
}

// compile compiles the modules of a new tree in a sandbox, so that not every run does. If that
// fails, runs do it.
func (e *Engine) compile(ctx context.Context, i *installation, dir string) error {
	t := backend.Tree{Host: dir, Inside: backend.PackageDir + "/new"}
	text, stdin, modules, err := resolver.Compile(dir, t.Inside)
	if err != nil || len(modules) == 0 {
		return err
	}
	i.say("compiling " + strconv.Itoa(len(modules)) + " modules")
	_, err = e.help(ctx, i.who, helper{
		language: i.language, program: text, stdin: stdin, backend: i.backend, tree: &t, bare: true, beside: i.beside,
		limits: sandboxmcp.Limits{TimeoutSeconds: resolveSeconds, MaxRAMMB: resolveMemory, MaxOutputBytes: maxSaid},
		after: func(ctx context.Context, files backend.Files) error {
			code, failed := files.Open(ctx, resolver.Compiled)
			if failed != nil {
				return failed
			}
			defer code.Close()
			return resolver.Store(dir, modules, bufio.NewReader(code))
		},
	})
	if err != nil && ctx.Err() == nil {
		e.log.Warn("modules of packages were not compiled", "packages", i.names, "error", err)
		return nil
	}
	return err
}
