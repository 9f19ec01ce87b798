// Package interpreter finds the interpreter of a request's language and the package sets that its
// programs see. It plans how a program is started, and says which modules may be imported in
// advance.
package interpreter

import (
	"context"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// Interpreter is an interpreter with the package sets that its programs see.
type Interpreter struct {
	backend.Interpreter

	Sets []string // directories of the package sets, as programs see them
}

// With returns an interpreter with package sets added. minTier is the weakest isolation that its
// sandboxes may have.
func With(found backend.Interpreter, sets []environment.Set, minTier sandboxmcp.Tier) Interpreter {
	i := Interpreter{Interpreter: found}
	i.Trees = slices.Clone(i.Trees)
	for _, s := range sets {
		inside := path.Join(backend.PackageDir, s.Name)
		i.Sets, i.Trees = append(i.Sets, inside), append(i.Trees, backend.Tree{Host: s.Dir, Inside: inside})
		if minTier == sandboxmcp.TierL1 { // a sandbox of that tier may have no mounts, so programs use the host's path
			i.Sets = append(i.Sets, s.Dir)
		}
	}
	return i
}

// Shows returns the tree of the interpreter that contains p, as a path of the host. It returns ""
// if no tree contains p.
func (i Interpreter) Shows(p string) string {
	for _, t := range i.Trees {
		if within(t.Host, p) {
			return t.Host
		}
	}
	return ""
}

// within reports whether p is dir or lies below it, after symbolic links are resolved.
func within(dir, p string) bool {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		p = real
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	rel, err := filepath.Rel(dir, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// Program returns what the kernel driver needs to start the program of a request. driver is the
// compiled driver; nil: its source text is used.
func (i Interpreter) Program(r sandboxmcp.Request, driver []byte) kernel.Program {
	p := kernel.Program{
		Driver: driver, Language: r.Language, Code: r.Code, FileName: r.FileName, Display: r.Display,
		Interpreter: i.Path, Version: i.Version, Virtual: i.Virtual, Trusted: i.TrustedForPreload, Sets: i.Sets, Env: r.Env,
	}
	if len(i.Sets) > 0 {
		p.Defaults = environment.Variables()
	}
	return p
}

// Config configures a [Finder].
type Config struct {
	StateDir string // directory of the package sets
	MinTier  sandboxmcp.Tier
	Logger   *slog.Logger
}

// Finder finds interpreters and plans programs. Its methods may be called concurrently.
type Finder struct {
	cfg   Config
	sets  *environment.Library
	ahead *environment.Preloader

	ctx  context.Context //nolint:containedctx // context of background work, which outlives the calls that start it
	work sync.WaitGroup
}

// New returns a Finder. When ctx ends, its background work ends.
func New(ctx context.Context, c Config) *Finder {
	f := &Finder{cfg: c, sets: environment.New(environment.Config{Dir: environment.Dir(c.StateDir), Logger: c.Logger}), ctx: ctx}
	f.ahead = environment.NewPreloader(ctx, f.sets, f.work.Go)
	return f
}

// Wait waits for background work. The caller has ended the context of New and must not call other
// methods meanwhile.
func (f *Finder) Wait() { f.work.Wait() }

// Find returns the interpreter of a language on a backend, with the package sets that its
// programs see.
func (f *Finder) Find(ctx context.Context, b backend.Backend, l sandboxmcp.Language) (Interpreter, error) {
	i, err := b.Interpreter(ctx, l)
	if err != nil {
		return Interpreter{}, err
	}
	return With(i, f.setsFor(ctx, b, i), f.cfg.MinTier), nil
}

// setsFor returns the package sets that programs of an interpreter see. Programs of another
// language see the sets of the Python that they would start as python3.
func (f *Finder) setsFor(ctx context.Context, b backend.Backend, i backend.Interpreter) []environment.Set {
	if i.Language != sandboxmcp.Python {
		if all, _ := f.sets.All(); len(all) == 0 {
			return nil
		}
		var err error
		if i, err = b.Interpreter(ctx, sandboxmcp.Python); err != nil || !startedAs("python3", i.Path) {
			return nil
		}
	}
	return f.active(i)
}

func (f *Finder) active(i backend.Interpreter) []environment.Set { return f.sets.Active(python(i)) }

func python(i backend.Interpreter) environment.Python {
	return environment.Python{Path: i.Path, Version: i.Version}
}

// startedAs reports whether looking up name on the sandbox's PATH finds the binary.
func startedAs(name, binary string) bool {
	for dir := range strings.SplitSeq(kernel.SearchPath, ":") {
		if p, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
			return p == binary
		}
	}
	return false
}

// Plan returns how to start the program of a request on a backend. network holds the environment
// variables that describe the network; nil: none.
func (f *Finder) Plan(b backend.Backend, r sandboxmcp.Request, i Interpreter, network map[string]string) (backend.Process, error) {
	var driver []byte
	if c, ok := b.(backend.Compiler); ok && r.Language == sandboxmcp.Python {
		name, text := kernel.PythonDriver()
		var prepare func(context.Context)
		if driver, prepare = c.Compiled(i.Interpreter, name, text); prepare != nil { // compile for later runs in the background
			f.work.Go(func() { prepare(context.WithoutCancel(f.ctx)) })
		}
	}
	p := i.Program(r, driver)
	p.Preload, p.Loaded = f.Preload(r, i)
	p.Network = network
	return kernel.Plan(p)
}

// Preload returns the modules that may be imported in advance for a program, in a sandbox that runs
// no code of a caller. The caller must call whole after the import: it hashes the files again. A
// set is imported in advance only if all its files were hashed since New.
func (f *Finder) Preload(r sandboxmcp.Request, i Interpreter) (modules []string, whole func(context.Context) error) {
	if r.Language != sandboxmcp.Python || len(i.Sets) == 0 || !i.TrustedSite {
		return nil, nil
	}
	return f.ahead.Modules(python(i.Interpreter), r.Code)
}

// Packages returns the packages of sets that a program seems to import, separated by commas.
func (f *Finder) Packages(r sandboxmcp.Request, i Interpreter) string {
	if r.Language != sandboxmcp.Python || len(i.Sets) == 0 {
		return ""
	}
	var all []string
	for _, s := range f.active(i.Interpreter) {
		all = append(all, s.Preload(r.Code)...)
	}
	return strings.Join(all, ",")
}

// Names lists the names of the packages of sets that Python programs on a backend can import.
func (f *Finder) Names(ctx context.Context, b backend.Backend) []string {
	i, err := b.Interpreter(ctx, sandboxmcp.Python)
	if err != nil {
		return nil
	}
	var all []string
	for _, s := range f.active(i) {
		for _, p := range s.Packages() {
			name, _, _ := strings.Cut(p, "==")
			all = append(all, name)
		}
	}
	return all
}

// Installed lists the packages of sets that programs of a runtime can import.
func (f *Finder) Installed(r sandboxmcp.Runtime) []string {
	var all []string
	if r.Language == sandboxmcp.Python && r.Available {
		for _, s := range f.sets.Active(environment.Python{Path: r.Path, Version: r.Version}) {
			all = append(all, s.Packages()...)
		}
	}
	return all
}
