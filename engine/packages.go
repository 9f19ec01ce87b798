package engine

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// interpreter returns the interpreter of a language on a backend, with the package sets
// that its programs see.
func (e *Engine) interpreter(ctx context.Context, on string, l sandboxmcp.Language) (interpreter, error) {
	b := e.backends[on]
	i, err := b.Interpreter(ctx, l)
	if err != nil {
		return interpreter{}, err
	}
	return withSets(interpreter{Interpreter: i}, e.setsFor(ctx, b, i), e.cfg.MinTier), nil
}

// withSets returns the interpreter with package sets added.
func withSets(i interpreter, sets []environment.Set, minTier sandboxmcp.Tier) interpreter {
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

// setsFor returns the package sets that programs of an interpreter see. Programs of
// another language see those of the Python that they would start as python3.
func (e *Engine) setsFor(ctx context.Context, b backend.Backend, i backend.Interpreter) []environment.Set {
	if i.Language != sandboxmcp.Python {
		if all, _ := e.sets.All(); len(all) == 0 {
			return nil
		}
		var err error
		if i, err = b.Interpreter(ctx, sandboxmcp.Python); err != nil || !startedAs("python3", i.Path) {
			return nil
		}
	}
	return e.sets.Active(environment.Python{Path: i.Path, Version: i.Version})
}

// startedAs reports whether name, searched on the sandbox's PATH, is the binary.
func startedAs(name, binary string) bool {
	for dir := range strings.SplitSeq(kernel.SearchPath, ":") {
		if p, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
			return p == binary
		}
	}
	return false
}

// program returns what the kernel driver needs to start the program of a request.
func program(r sandboxmcp.Request, i interpreter, driver []byte) kernel.Program {
	p := kernel.Program{
		Driver: driver, Language: r.Language, Code: r.Code, FileName: r.FileName, Display: r.Display,
		Interpreter: i.Path, Version: i.Version, Virtual: i.Virtual, Trusted: i.TrustedForPreload, Sets: i.Sets, Env: r.Env,
	}
	if len(i.Sets) > 0 {
		p.Defaults = environment.Variables()
	}
	return p
}

// preload returns the modules that may be imported ahead for a program, and the check that
// follows the import; see environment.Preloader.
func (e *Engine) preload(r sandboxmcp.Request, i interpreter) (modules []string, whole func(context.Context) error) {
	if r.Language != sandboxmcp.Python || len(i.Sets) == 0 || !i.TrustedSite {
		return nil, nil
	}
	return e.ahead.Modules(environment.Python{Path: i.Path, Version: i.Version}, r.Code)
}

// packages lists the packages of sets that a program seems to import, separated by
// commas.
func (e *Engine) packages(r sandboxmcp.Request, i interpreter) string {
	if r.Language != sandboxmcp.Python || len(i.Sets) == 0 {
		return ""
	}
	var all []string
	for _, s := range e.sets.Active(environment.Python{Path: i.Path, Version: i.Version}) {
		all = append(all, s.Preload(r.Code)...)
	}
	return strings.Join(all, ",")
}

// preloaded lists the packages of sets that programs of a runtime can import.
func (e *Engine) preloaded(r sandboxmcp.Runtime) []string {
	var all []string
	if r.Language == sandboxmcp.Python && r.Available {
		for _, s := range e.sets.Active(environment.Python{Path: r.Path, Version: r.Version}) {
			all = append(all, s.Packages()...)
		}
	}
	return all
}

// checkSets hashes every file of the package sets of an interpreter.
func checkSets(ctx context.Context, o Options, r sandboxmcp.Runtime) []sandboxmcp.Check {
	library := environment.New(environment.Config{Dir: environment.Dir(o.Config.StateDir), Logger: o.Logger})
	var checks []sandboxmcp.Check
	sets := library.Active(environment.Python{Path: r.Path, Version: r.Version})
	for _, recipe := range environment.Recipes() {
		c := sandboxmcp.Check{Name: recipe.Name + " packages", Detail: "not installed", Fix: "sandboxmcp setup " + recipe.Name}
		if _, err := library.All(); err != nil {
			c.Detail = err.Error()
		}
		if i := slices.IndexFunc(sets, func(s environment.Set) bool { return s.Name == recipe.Name }); i >= 0 {
			s := sets[i]
			c.Detail = fmt.Sprintf("%d packages, %d MiB, every file hashed", len(s.Wheels), s.Files.Bytes>>20)
			if err := library.Verify(ctx, s); err != nil {
				c.Detail = err.Error()
			} else {
				c.OK, c.Fix = true, ""
			}
		}
		checks = append(checks, c)
	}
	return checks
}
