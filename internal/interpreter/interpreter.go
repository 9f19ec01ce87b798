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

	Sets    []string // directories of the package sets, as programs see them
	Modules []string // directories of Node.js packages likewise
	Python  string   // another language's: the Python that its programs start by its name; empty: none
	Names   []string // names of Python that do not lead to it on the PATH of programs

	installed []Installed // see WithInstalled
}

// With returns an interpreter with package sets added. minTier is the weakest isolation that its
// sandboxes may have.
func With(found backend.Interpreter, sets []environment.Set, minTier sandboxmcp.Tier) Interpreter {
	i := Interpreter{Interpreter: found}
	i.Trees = slices.Clone(i.Trees)
	for _, s := range sets {
		tree := treeOf(s)
		i.Sets, i.Trees = append(i.Sets, tree.Inside), append(i.Trees, tree)
		if minTier == sandboxmcp.TierL1 { // a sandbox of that tier may have no mounts, so programs use the host's path
			i.Sets = append(i.Sets, s.Dir)
		}
	}
	return i
}

// Shows returns the tree of the interpreter that contains p, as a path of the host. It returns ""
// if no tree contains p.
func (i Interpreter) Shows(p string) string {
	if len(i.Trees) == 0 {
		return ""
	}
	p = resolved(p)
	for _, t := range i.Trees {
		if rel, err := filepath.Rel(resolved(t.Host), p); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return t.Host
		}
	}
	return ""
}

// resolved returns a path without symbolic links, or the path as it is if that fails.
func resolved(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

// Program returns what the kernel driver needs to start the program of a request. driver is the
// compiled driver; nil: its source text is used.
func (i Interpreter) Program(r sandboxmcp.Request, driver []byte) kernel.Program {
	p := kernel.Program{
		Driver: driver, Language: r.Language, Code: r.Code, FileName: r.FileName, Display: r.Display,
		Interpreter: i.Path, Version: i.Version, Virtual: i.Virtual, Trusted: i.TrustedForPreload, Sets: i.Sets, Modules: i.Modules, Env: r.Env,
		Python: i.Python, Names: i.Names,
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
	names sync.Map // path of a Python to the names that do not lead to it

	drivers sync.Map // by image, path and version of a Python: see waiting

	ctx  context.Context //nolint:containedctx // context of background work, which outlives the calls that start it
	work sync.WaitGroup
}

// New returns a Finder. When ctx ends, its background work ends.
func New(ctx context.Context, c Config) *Finder {
	f := &Finder{cfg: c, sets: environment.New(environment.Config{Dir: environment.Dir(c.StateDir), Logger: c.Logger}), ctx: ctx}
	f.ahead = environment.NewPreloader(ctx, f.sets)
	return f
}

// Wait waits for background work. The caller has ended the context of New and must not call other
// methods meanwhile.
func (f *Finder) Wait() { f.work.Wait() }

// Find returns the interpreter of a language on a backend, with the package sets that its
// programs see. Programs of another language see the Python of the backend, with its sets.
func (f *Finder) Find(ctx context.Context, b backend.Backend, l sandboxmcp.Language) (Interpreter, error) {
	i, err := b.Interpreter(ctx, l)
	if err != nil {
		return Interpreter{}, err
	}
	python := i
	if l != sandboxmcp.Python {
		python, err = b.Interpreter(ctx, sandboxmcp.Python)
		if err != nil || python.Image != i.Image || (Interpreter{Interpreter: python}).Shows(f.cfg.StateDir) != "" {
			return Interpreter{Interpreter: i}, nil //nolint:nilerr // its programs go without Python
		}
	}
	found := With(i, f.active(python), f.cfg.MinTier)
	found.Names = f.namesFor(python)
	if l != sandboxmcp.Python {
		found.Python, found.Trees = python.Path, joined(python.Trees, found.Trees)
	}
	return found, nil
}

// Beside returns i with the trees of the interpreters of all other languages, so that they can
// run in the same sandbox.
func (f *Finder) Beside(ctx context.Context, b backend.Backend, i Interpreter) Interpreter {
	for _, l := range sandboxmcp.Languages() {
		if other, err := b.Interpreter(ctx, l); err == nil && (Interpreter{Interpreter: other}).Shows(f.cfg.StateDir) == "" {
			i.Trees = joined(i.Trees, other.Trees)
		}
	}
	return i
}

// joined returns the trees of two lists, each once.
func joined(a, b []backend.Tree) []backend.Tree {
	all := slices.Clone(a)
	for _, t := range b {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// namesFor returns those of the names of Python that do not lead to an interpreter on the PATH of
// its programs.
func (f *Finder) namesFor(python backend.Interpreter) []string {
	if known, ok := f.names.Load(python.Path); ok {
		names, _ := known.([]string)
		return names
	}
	var names []string
	for _, name := range []string{"python", "python3"} {
		if !startedAs(name, python) {
			names = append(names, name)
		}
	}
	f.names.Store(python.Path, names)
	return names
}

func (f *Finder) active(i backend.Interpreter) []environment.Set { return f.sets.Active(python(i)) }

func python(i backend.Interpreter) environment.Python {
	return environment.Python{Path: i.Path, Version: i.Version}
}

// startedAs reports whether looking up name on the PATH of programs finds an interpreter.
func startedAs(name string, i backend.Interpreter) bool {
	own := filepath.Dir(i.Path)
	dirs := strings.Split(kernel.SearchPath, ":")
	if !slices.Contains(dirs, own) {
		dirs = append([]string{own}, dirs...)
	}
	for _, dir := range dirs {
		if p, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
			real, err := filepath.EvalSymlinks(i.Path)
			return err == nil && p == real && (dir == own || !i.Virtual)
		}
	}
	return false
}

// Plan returns how to start the program of a request on a backend. network holds the environment
// variables that describe the network; nil: none. guard is the text of Program.Guard in package kernel;
// empty: none.
func (f *Finder) Plan(b backend.Backend, r sandboxmcp.Request, i Interpreter, network map[string]string, guard string) (backend.Process, error) {
	var driver []byte
	if r.Language == sandboxmcp.Python {
		name, text := kernel.PythonDriver()
		driver = f.Compiled(b, i, name, text)
	}
	p := i.Program(r, driver)
	if r.Language == sandboxmcp.Python {
		p.Waiting = f.waiting(i, driver)
	}
	if r.Language == sandboxmcp.Python && guard != "" {
		if p.Guard = f.Compiled(b, i, "guard.py", []byte(guard)); p.Guard == nil {
			p.Guard = []byte(guard)
		}
	}
	p.Preload, p.Check = f.Preload(r, i)
	p.Network = network
	return kernel.Plan(p)
}

// waiting returns the driver for interpreters that are started in advance. It is always the form that was
// planned first, compiled or not. So an interpreter that was started before the driver was compiled can still
// be used.
func (f *Finder) waiting(i Interpreter, driver []byte) []byte {
	key := i.Image + " " + i.Path + " " + i.Version
	first, ok := f.drivers.Load(key)
	if !ok {
		first, _ = f.drivers.LoadOrStore(key, kernel.WaitingPythonDriver(driver))
	}
	form, _ := first.([]byte)
	return form
}

// Compiled returns a text of the product as a Python has compiled it, in the form of a .pyc file. nil:
// there is none yet. name is the text's file name in tracebacks.
func (f *Finder) Compiled(b backend.Backend, i Interpreter, name string, text []byte) []byte {
	c, ok := b.(backend.Compiler)
	if !ok {
		return nil
	}
	code, prepare := c.Compiled(i.Interpreter, name, text)
	if prepare != nil { // compile for later runs in the background
		f.work.Go(func() { prepare(context.WithoutCancel(f.ctx)) })
	}
	return code
}

// Preload returns the modules that may be imported in advance for a program, in a sandbox that runs
// no code of a caller. check hashes the files of their set: before the import, unless that was done
// since New, and after it.
func (f *Finder) Preload(r sandboxmcp.Request, i Interpreter) (modules []string, check backend.LoadCheck) {
	if r.Language != sandboxmcp.Python || len(i.Sets) == 0 || !i.TrustedSite || i.hides(f.active(i.Interpreter)) {
		return nil, nil
	}
	return f.ahead.Modules(python(i.Interpreter), r.Code)
}

// Packages returns the modules of sets that a program seems to need, separated by commas.
func (f *Finder) Packages(r sandboxmcp.Request, i Interpreter) string {
	if r.Language != sandboxmcp.Python || len(i.Sets) == 0 {
		return ""
	}
	var all []string
	sets := f.active(i.Interpreter)
	if i.hides(sets) {
		return ""
	}
	for _, s := range sets {
		all = append(all, s.Preload(r.Code)...)
	}
	return strings.Join(all, ",")
}

// Names lists the names of the packages of sets that Python programs on a backend can import.
// It fails if the backend has no Python.
func (f *Finder) Names(ctx context.Context, b backend.Backend) ([]string, error) {
	names, _, err := f.Shown(ctx, b, func(backend.Tree) bool { return true })
	return names, err
}

// Shown is Names for a sandbox, of which shows reports what it shows. It also lists the packages of
// the sets that the sandbox does not show.
func (f *Finder) Shown(ctx context.Context, b backend.Backend, shows func(backend.Tree) bool) (names, others []string, err error) {
	i, err := b.Interpreter(ctx, sandboxmcp.Python)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range f.active(i) {
		into := &names
		if !shows(treeOf(s)) {
			into = &others
		}
		for _, p := range s.Packages() {
			name, _, _ := strings.Cut(p, "==")
			*into = append(*into, name)
		}
	}
	return names, others, nil
}

// treeOf returns a package set as programs see it.
func treeOf(s environment.Set) backend.Tree {
	return backend.Tree{Host: s.Dir, Inside: path.Join(backend.PackageDir, s.Name)}
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
