// Package runtimes finds the interpreters of this machine. It searches a given PATH,
// follows version-manager shims to the real binary, and lists the host directories that an
// interpreter needs to start.
//
// It searches for a language when an interpreter of it is first requested. Results are
// cached in memory and in an optional file until the files that were found change. A cached
// answer starts no process.
package runtimes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Config configures New.
type Config struct {
	Path      string       // the PATH to search; relative entries are ignored
	HomeEnv   []string     // environment, KEY=value, for shims and probes; programs in sandboxes never get it
	Root      string       // root file system in which interpreters are found without starting one; empty: this machine's
	CacheFile string       // file that caches results between processes; empty: no file. Its directory must exist and be private
	Logger    *slog.Logger // nil: nothing is logged

	// Remember is how long Find repeats an answer without looking at the files again. A change of
	// an interpreter, or of who can change it, is seen after that time at the latest.
	Remember time.Duration

	// Now returns the time; nil: time.Now.
	Now func() time.Time

	// Changeable is a directory that programs in sandboxes can change; empty: none. Interpreters that lead into it
	// are passed over and never started.
	Changeable string
}

// Interpreter is a binary that runs code of a language.
type Interpreter struct {
	Language sandboxmcp.Language `json:"language"`

	// Path is the real binary behind shims and symbolic links. Links are kept in two cases,
	// because these binaries depend on the name they are started under: the interpreter of
	// a virtual environment, and a shell in a multi-call binary.
	Path string `json:"path"`

	// Version is a version such as "3.11.2". Find may leave it at "3.11" or empty if only a
	// started interpreter could tell more. List always sets it for Python, Node and bash.
	Version string `json:"version"`

	// ReadOnlyDirs are the host directories that the interpreter needs besides /usr, /bin,
	// /sbin and /lib*. They exist, and no one of them lies below another.
	ReadOnlyDirs []string `json:"read_only_dirs"`

	// Virtual means that this is the python of a virtual environment, which finds its
	// packages by a module that it loads at start.
	Virtual bool `json:"virtual"`

	// TrustedForPreload means that only root can change the binary, its ReadOnlyDirs, a
	// Python's library directories, and the directories above them. The files in these
	// directories are not checked.
	TrustedForPreload bool `json:"trusted_for_preload"`

	// TrustedSite means the same, and also covers the directories in which a Python looks
	// for packages. Python runs code from them when it first imports a package.
	TrustedSite bool `json:"trusted_site"`
}

// Set finds interpreters and caches the results. Its methods may be called concurrently.
type Set struct {
	cfg      Config
	avoid    changeable
	slots    map[sandboxmcp.Language]chan struct{} // held while a language is searched, by one goroutine at a time
	cache    *cache
	codes    *codes
	compiler compiler

	mu     sync.Mutex
	latest map[sandboxmcp.Language]finding
}

// finding is an interpreter that was found, and when.
type finding struct {
	Interpreter

	at time.Time
}

// New makes a Set. It searches for nothing yet: Find searches for its language when it is
// first called.
func New(cfg Config) *Set {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	avoid := changeable(plainfile.Unlinked(cfg.Changeable))
	cfg.Path, cfg.HomeEnv = avoid.outside(cfg.Path), avoid.environ(cfg.HomeEnv)
	s := &Set{cfg: cfg, avoid: avoid, slots: map[sandboxmcp.Language]chan struct{}{}, cache: newCache(cfg), codes: newCodes(cfg.CacheFile), compiler: compiler{busy: map[string]bool{}}, latest: map[sandboxmcp.Language]finding{}}
	for _, l := range sandboxmcp.Languages() {
		s.slots[l] = make(chan struct{}, 1)
	}
	return s
}

// Find returns the interpreter of a language. On PATH it looks for python3, then python, of
// version 3.8 or later; for node, then nodejs; for bash, then sh. If it finds none, the error
// is runtime_unavailable, and its hint is the command that installs one.
func (s *Set) Find(ctx context.Context, lang sandboxmcp.Language) (Interpreter, error) {
	if s.cfg.Remember <= 0 {
		return s.find(ctx, lang, false)
	}
	now := s.cfg.Now()
	s.mu.Lock()
	known, ok := s.latest[lang]
	s.mu.Unlock()
	if age := now.Sub(known.at); ok && age >= 0 && age < s.cfg.Remember {
		known.ReadOnlyDirs = slices.Clone(known.ReadOnlyDirs)
		return known.Interpreter, nil
	}
	in, err := s.find(ctx, lang, false)
	if err == nil {
		s.mu.Lock()
		s.latest[lang] = finding{in, now}
		s.mu.Unlock()
		in.ReadOnlyDirs = slices.Clone(in.ReadOnlyDirs)
	}
	return in, err
}

// List returns one row per language, in the order of sandboxmcp.Languages, with exact
// versions. It may start each interpreter once. It leaves Backend empty.
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
	if s.cfg.Root != "" {
		return s.findBelow(lang)
	}
	tried := []string{}
	for hit := range search(s.cfg.Path, names[lang]) {
		if s.avoid.has(hit.path) {
			tried = append(tried, hit.path+": "+passedOver)
			continue
		}
		e, ok := s.cache.look(lang, hit)
		if !ok || (exact && e.Failure == "" && !isExact(e.Interpreter.Version)) {
			in, err := s.examine(ctx, lang, hit, exact)
			if ctx.Err() != nil {
				return Interpreter{}, cancelled(ctx)
			}
			e = s.cache.keep(lang, hit, in, err)
		}
		if e.Failure == "" && s.avoid.holds(e.Interpreter) {
			e.Failure = passedOver
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

// passedOver is why an interpreter that leads into Config.Changeable is not used.
const passedOver = "programs in sandboxes can change it"

func cancelled(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the search for an interpreter was cancelled").WithCause(ctx.Err())
}

// names are the file names to search for, in the order of preference.
var names = map[sandboxmcp.Language][]string{
	sandboxmcp.Python: {"python3", "python"},
	sandboxmcp.Node:   {"node", "nodejs"},
	sandboxmcp.Shell:  {"bash", "sh"},
}

// isExact reports whether a version has three parts, as "3.11.2" has and "3.11" has not.
func isExact(version string) bool { return strings.Count(version, ".") >= 2 }

// oldestPython is the oldest Python version that the driver supports.
var oldestPython = [2]int{3, 8}

// pythonTooOld reports whether a version such as "3.7.16" is older than oldestPython. A
// version that cannot be parsed counts as too old.
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
