// Package environment manages package sets: Python packages on this machine that programs
// can import without a network.
//
// A program imports exactly the files that were hashed when the set was installed. A set is
// installed from wheels only, so that no code of a package runs outside of a sandbox. The
// interpreter's own pip fetches the wheels with the user's configuration. They are hashed
// and installed from a lock of these hashes. The directory of a set is read-only and named
// after the digest of its manifest:
//
//	environments/python.json              the active sets, by kind of interpreter
//	environments/science-cp311.lock       the chosen wheels, with their hashes
//	environments/DIGEST/manifest.json     the content of the set; DIGEST is its SHA-256
//	environments/DIGEST/files.sha256      every file of the set, in the format of sha256sum
//	environments/DIGEST/site-packages/    the files that programs see
//	environments/DIGEST/cache/            caches that packages would otherwise rebuild in every run
//
// A set is built in a temporary directory and then renamed, so an incomplete set is never
// visible.
package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Names in the directory of sets and in a set.
const (
	activeName   = "python.json"
	lockName     = ".lock"
	stagePrefix  = ".new-"
	manifestName = "manifest.json"
	filesName    = "files.sha256"
	sitePackages = "site-packages"
	cacheName    = "cache"
)

// Config configures a Library.
type Config struct {
	Dir    string       // directory of sets; it need not exist
	Logger *slog.Logger // nil: nothing is logged
}

// Library holds the sets of one directory. Its methods may be called concurrently, also by
// several processes.
type Library struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	seen  fileID           // of python.json when sets was read from it
	sets  map[string][]Set // usable active sets, by Python.Tag
	fault error            // why other active sets are not usable
}

// New makes a Library. It does not access the directory.
func New(cfg Config) *Library {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Library{dir: cfg.Dir, log: cfg.Logger}
}

// Dir returns the directory of sets in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "environments") }

// Set is an installed package set.
type Set struct {
	Manifest

	Digest string // SHA-256 of the manifest; the name of the directory
	Dir    string // absolute path
}

// Packages returns the requested packages as NAME==VERSION.
func (s Set) Packages() []string {
	var all []string
	for _, name := range s.Requested {
		for _, w := range s.Wheels {
			if w.Name == Normal(name) {
				all = append(all, w.Name+"=="+w.Version)
			}
		}
	}
	return all
}

// active is python.json: {"version": 1, "active": {"cp311": {"science": "DIGEST"}}}.
type active struct {
	Version int                          `json:"version"`
	Active  map[string]map[string]string `json:"active"`
}

const (
	activeVersion = 1
	maxActive     = 64 << 10 // bytes
	maxManifest   = 1 << 20  // bytes
)

// Active returns the sets that programs of an interpreter see. It checks that only the
// server's user or root can have written them, and that the manifest has the digest that
// the directory is named after. The result of most checks is cached. A set that fails is
// left out, and the reason is logged.
func (l *Library) Active(p Python) []Set {
	sets, err := l.look()
	if err != nil {
		return nil
	}
	var whole []Set
	for _, s := range sets[p.Tag()] {
		if err := Private(s.Dir); err != nil { // it may have changed since look
			l.log.Warn("package set is not used", "set", s.Name, "error", err)
			continue
		}
		whole = append(whole, s)
	}
	return whole
}

// look returns the usable active sets. It reads them again if python.json has changed. It
// fails only if python.json cannot be read.
func (l *Library) look() (map[string][]Set, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, err := identify(filepath.Join(l.dir, activeName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.seen, l.sets, l.fault = fileID{}, nil, nil
		return nil, nil
	case err == nil && id == l.seen:
		return l.sets, nil
	}
	l.seen, l.sets, l.fault = id, map[string][]Set{}, nil
	table, err := l.readActive()
	if err != nil {
		l.sets, l.fault = nil, err
		l.forgetLocked(err)
		l.log.Warn("package sets are not used", "error", err)
		return nil, err
	}
	for tag, names := range table.Active {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			s, err := l.open(names[name])
			if err == nil && (s.Name != name || s.Python.Tag != tag) {
				err = fmt.Errorf("%s holds another set", s.Dir)
			}
			if err != nil {
				l.fault = errors.Join(l.fault, err)
				l.forgetLocked(err)
				l.log.Warn("package set is not used", "set", name, "error", err)
				continue
			}
			l.sets[tag] = append(l.sets[tag], s)
		}
	}
	return l.sets, nil
}

// forgetLocked has the sets read again at the next look if err may pass. The caller holds l.mu.
func (l *Library) forgetLocked(err error) {
	if passing(err) {
		l.seen = fileID{}
	}
}

// All returns every usable active set. The error says why other active sets are not usable.
func (l *Library) All() ([]Set, error) {
	sets, err := l.look()
	if err != nil {
		return nil, err
	}
	var all []Set
	for _, tag := range slices.Sorted(maps.Keys(sets)) {
		all = append(all, sets[tag]...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return all, l.fault
}

func (l *Library) readActive() (active, error) {
	none := active{Version: activeVersion, Active: map[string]map[string]string{}}
	if err := Private(l.dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return none, nil
		}
		return none, err
	}
	data, err := readOwn(filepath.Join(l.dir, activeName), maxActive)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	var a active
	if err := json.Unmarshal(data, &a); err != nil {
		return none, fmt.Errorf("read %s: %w", activeName, err)
	}
	if a.Version != activeVersion || a.Active == nil {
		return none, fmt.Errorf("read %s: version %d is not known", activeName, a.Version)
	}
	return a, nil
}

// open reads a set and checks its manifest and the permissions of its directories. It does
// not hash its files; see Verify.
func (l *Library) open(digest string) (Set, error) {
	if !isDigest(digest) {
		return Set{}, fmt.Errorf("%s is no digest", sandboxmcp.Quote(digest))
	}
	s := Set{Digest: digest, Dir: filepath.Join(l.dir, digest)}
	for _, dir := range []string{s.Dir, filepath.Join(s.Dir, sitePackages), filepath.Join(s.Dir, cacheName)} {
		if err := Private(dir); err != nil {
			return s, err
		}
	}
	data, err := readOwn(filepath.Join(s.Dir, manifestName), maxManifest)
	if err != nil {
		return s, err
	}
	if got := digestOf(data); got != digest {
		return s, fmt.Errorf("the manifest in %s has the digest %s", s.Dir, got)
	}
	if err := json.Unmarshal(data, &s.Manifest); err != nil {
		return s, fmt.Errorf("read the manifest in %s: %w", s.Dir, err)
	}
	if s.Version != manifestVersion {
		return s, fmt.Errorf("the manifest in %s has version %d, which is not known", s.Dir, s.Version)
	}
	return s, nil
}

// activate makes a set the active one of its name for a kind of interpreter. An empty
// digest removes the name. The caller holds the lock.
func (l *Library) activate(name, tag, digest string) error {
	a, err := l.readActive()
	if err != nil {
		return err
	}
	if digest != "" {
		if a.Active[tag] == nil {
			a.Active[tag] = map[string]string{}
		}
		a.Active[tag][name] = digest
	} else {
		delete(a.Active[tag], name)
		if len(a.Active[tag]) == 0 {
			delete(a.Active, tag)
		}
	}
	data, err := json.MarshalIndent(a, "", "\t")
	if err != nil {
		return fmt.Errorf("encode %s: %w", activeName, err)
	}
	return replace(filepath.Join(l.dir, activeName), append(data, '\n'))
}

// Remove deletes the sets of a name for every interpreter and returns them. Running
// programs can no longer import their packages.
func (l *Library) Remove(ctx context.Context, name string) ([]Set, error) {
	if err := Private(l.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, notThere(name)
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := l.readActive()
	if err != nil {
		return nil, broken(err)
	}
	var gone []Set
	for tag, names := range a.Active {
		digest, ok := names[name]
		if !ok {
			continue
		}
		s, _ := l.open(digest) // damaged sets are removed, too
		if s.Manifest.Name == "" {
			s.Manifest.Name, s.Python.Tag = name, tag
		}
		gone = append(gone, s)
		err = errors.Join(err, l.activate(name, tag, ""), remove(filepath.Join(l.dir, lockFile(name, tag))))
	}
	if len(gone) == 0 {
		return nil, notThere(name)
	}
	if err = errors.Join(err, l.sweep()); err != nil {
		return gone, broken(err)
	}
	return gone, nil
}

func notThere(name string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no package set %s is installed", sandboxmcp.Quote(name)).
		WithHint("see `sandboxmcp setup list`")
}

func broken(err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package sets in the state directory cannot be changed: %s", err).
		WithHint("check that the state directory belongs to you and is not full").WithCause(err)
}

// sweep removes sets that are not active and the temporary directories of interrupted
// installations. The caller holds the lock.
func (l *Library) sweep() error {
	a, err := l.readActive()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, names := range a.Active {
		for _, digest := range names {
			used[digest] = true
		}
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, stagePrefix) || isDigest(name) && !used[name] {
			err = errors.Join(err, RemoveTree(filepath.Join(l.dir, name)))
		}
	}
	return err
}
