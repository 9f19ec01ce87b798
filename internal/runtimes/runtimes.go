// Package runtimes knows which interpreters this machine has. It finds them on
// a given PATH, sees through version-manager shims to the real binary, and
// tells what of the host an interpreter needs to see in order to start.
//
// Finding is lazy per language and remembered, in memory and in an optional
// cache file, for as long as the files that were found stay the same. A warm
// answer starts no process.
package runtimes

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Config says where to look.
type Config struct {
	Path      string       // the PATH to search; relative entries are not searched
	HomeEnv   []string     // environment, KEY=value, in which a shim is run; an interpreter is never given it otherwise
	CacheFile string       // where findings are kept between processes; empty: nowhere. Its directory must exist and be private
	Logger    *slog.Logger // nil: silent

	// Now tells the time; nil: the machine's clock.
	Now func() time.Time
}

// Interpreter is a program that runs code of a language.
type Interpreter struct {
	Language sandboxmcp.Language `json:"language"`

	// Path is the real binary behind shims and symbolic links. Two keep their
	// links, because they change by the name they are started under: the
	// interpreter of a virtual environment and a multi-call binary's shell.
	Path string `json:"path"`

	// Version is such as "3.11.2". Find may leave it at "3.11" or empty where
	// it could only be learnt by starting the interpreter; List never does.
	Version string `json:"version"`

	// ReadOnlyDirs are the host directories besides /usr, /bin, /sbin and
	// /lib* that it needs. They exist, and none lies in another.
	ReadOnlyDirs []string `json:"read_only_dirs"`

	// Virtual says that it is the python of a virtual environment, which finds
	// its packages by a module that it loads at its start.
	Virtual bool `json:"virtual"`

	// TrustedForPreload says that nobody but root can change the binary, its
	// ReadOnlyDirs, a Python's library or a directory above them. Entries below
	// are not searched.
	TrustedForPreload bool `json:"trusted_for_preload"`

	// TrustedSite says the same of the directories, besides, in which a Python
	// looks for packages, and runs what lies there when the first is imported.
	TrustedSite bool `json:"trusted_site"`
}

// Set is what was found so far. All methods may be called concurrently.
type Set struct {
	cfg      Config
	slots    map[sandboxmcp.Language]chan struct{} // one finder per language at a time
	cache    *cache
	compiler compiler
}

// New makes a Set. It looks for nothing yet: the first Find of a language does, for
// that language only.
func New(cfg Config) *Set {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Set{cfg: cfg, slots: map[sandboxmcp.Language]chan struct{}{}, cache: newCache(cfg), compiler: compiler{busy: map[string]bool{}}}
	for _, l := range sandboxmcp.Languages() {
		s.slots[l] = make(chan struct{}, 1)
	}
	return s
}

// Find returns the interpreter of a language: of python the first python3 on
// the PATH, else the first python, that is 3.8 or later; of node the first node
// or nodejs; of shell the first bash, else the first sh. When there is none the
// error is runtime_unavailable, with the command that installs one as its hint.
func (s *Set) Find(ctx context.Context, lang sandboxmcp.Language) (Interpreter, error) {
	return s.find(ctx, lang, false)
}

// List returns one row per language, in the order of sandboxmcp.Languages, with
// the exact version of what is there. It may start each interpreter once; the
// rows' Backend is left to the caller.
func (s *Set) List(ctx context.Context) []sandboxmcp.Runtime {
	var rows []sandboxmcp.Runtime
	for _, l := range sandboxmcp.Languages() {
		row := sandboxmcp.Runtime{Language: l, PackagesPreloaded: []string{}}
		in, err := s.find(ctx, l, true)
		var e *sandboxmcp.Error
		switch {
		case err == nil:
			row.Available, row.Version, row.Path = true, in.Version, in.Path
		case errors.As(err, &e):
			row.Hint = e.Hint
		default:
			row.Hint = err.Error()
		}
		rows = append(rows, row)
	}
	return rows
}

func (s *Set) find(ctx context.Context, lang sandboxmcp.Language, exact bool) (Interpreter, error) {
	slot, ok := s.slots[lang]
	if !ok {
		return Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "language %s is not supported", sandboxmcp.Quote(string(lang)))
	}
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
		return Interpreter{}, cancelled(ctx)
	}
	tried := []string{}
	for _, hit := range search(s.cfg.Path, names[lang]) {
		e, ok := s.cache.look(lang, hit)
		if !ok || (exact && e.Failure == "" && !isExact(e.Interpreter.Version)) {
			in, err := s.examine(ctx, lang, hit, exact)
			if ctx.Err() != nil {
				return Interpreter{}, cancelled(ctx)
			}
			e = s.cache.keep(lang, hit, in, err)
		}
		if e.Failure == "" {
			return e.Interpreter, nil
		}
		s.cfg.Logger.Debug("interpreter passed over", "path", hit.path, "reason", e.Failure)
		tried = append(tried, hit.path+": "+e.Failure)
	}
	err := sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "no interpreter for %s was found on the PATH", lang).WithHint(installHint(s.cfg.Path, lang))
	if len(tried) > 0 {
		err.Message += "; passed over: " + strings.Join(tried, "; ")
	}
	return Interpreter{}, err
}

func cancelled(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the search for an interpreter was cancelled").WithCause(ctx.Err())
}

// names are the file names that are looked for, the preferred first.
var names = map[sandboxmcp.Language][]string{
	sandboxmcp.Python: {"python3", "python"},
	sandboxmcp.Node:   {"node", "nodejs"},
	sandboxmcp.Shell:  {"bash", "sh"},
}

// isExact tells "3.11.2" from "3.11" and from nothing.
func isExact(version string) bool { return strings.Count(version, ".") >= 2 }

// oldestPython is the oldest one that the product's own driver runs on.
var oldestPython = [2]int{3, 8}

// pythonTooOld reads "3.7.16"; a version that cannot be read is too old.
func pythonTooOld(version string) bool {
	var n [2]int
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	for i := range n {
		v, err := strconv.Atoi(parts[i])
		if err != nil {
			return true
		}
		n[i] = v
	}
	return n[0] != oldestPython[0] || n[1] < oldestPython[1]
}
