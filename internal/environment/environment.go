// Package environment keeps package sets: Python packages that programs can
// import without a network, because they are on this machine already.
//
// Its promise: what a program imports from a set is what was hashed. A set is
// made from wheels alone, so that no package's own code runs outside of a
// sandbox; the wheels are fetched by the interpreter's own pip with the user's
// configuration, hashed, and installed from a lock of those hashes. The
// directory of a set is read-only and has the digest of its manifest as its name:
//
//	environments/python.json              which sets are active, per kind of interpreter
//	environments/science-cp311.lock       the wheels that were chosen, with their hashes
//	environments/DIGEST/manifest.json     what it is made of; DIGEST is its SHA-256
//	environments/DIGEST/files.sha256      every file of it, as sha256sum writes them
//	environments/DIGEST/site-packages/    what programs see
//	environments/DIGEST/cache/            what packages would else work out in every run
//
// A set is made beside and renamed into place, so there is never half of one.
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

// Config says where sets are.
type Config struct {
	Dir    string       // the sets' own directory; it need not exist
	Logger *slog.Logger // nil: silent
}

// Library is the sets of one directory. Its methods may be called concurrently,
// by several processes too.
type Library struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	seen  fileID // of python.json when sets was read from it
	sets  map[string][]Set
	fault error
}

// New makes a Library. It touches nothing yet.
func New(cfg Config) *Library {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Library{dir: cfg.Dir, log: cfg.Logger}
}

// Dir is the directory of sets in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "environments") }

// Set is an installed package set.
type Set struct {
	Manifest

	Digest string // of the manifest; the name of its directory
	Dir    string // absolute
}

// Packages are the names of what was asked for, with their versions, as pip has it.
func (s Set) Packages() []string {
	var all []string
	for _, name := range s.Requested {
		for _, w := range s.Wheels {
			if w.Name == normal(name) {
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

// Active returns the sets that programs of an interpreter see, after a look that
// costs next to nothing when nothing has changed: that the server's user or root
// alone can have written them, and that the manifest is the one that the
// directory is named after. A set that fails is left out, and the log says why.
func (l *Library) Active(p Python) []Set {
	sets, err := l.look()
	if err != nil {
		return nil
	}
	var whole []Set
	for _, s := range sets[p.Tag()] {
		if err := private(s.Dir); err != nil { // since it was looked at
			l.log.Warn("package set is not used", "set", s.Name, "error", err)
			continue
		}
		whole = append(whole, s)
	}
	return whole
}

// look reads what is active, unless that is known. The error is the first fault
// that was found; sets without one are returned all the same.
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
		l.log.Warn("package sets are not used", "error", err)
		return nil, err
	}
	for tag, names := range table.Active {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			s, err := l.open(names[name])
			if err == nil && (s.Name != name || s.Python.Tag != tag) {
				err = fmt.Errorf("%s is another set", s.Dir)
			}
			if err != nil {
				l.fault = errors.Join(l.fault, err)
				l.log.Warn("package set is not used", "set", name, "error", err)
				continue
			}
			l.sets[tag] = append(l.sets[tag], s)
		}
	}
	return l.sets, nil
}

// All returns every active set, and what is wrong with those that are not used.
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
	if err := private(l.dir); err != nil {
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

// open looks at a set as cheaply as it can be trusted.
func (l *Library) open(digest string) (Set, error) {
	if !isDigest(digest) {
		return Set{}, fmt.Errorf("%s is no digest", sandboxmcp.Quote(digest))
	}
	s := Set{Digest: digest, Dir: filepath.Join(l.dir, digest)}
	for _, dir := range []string{s.Dir, filepath.Join(s.Dir, sitePackages), filepath.Join(s.Dir, cacheName)} {
		if err := private(dir); err != nil {
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

// activate makes a set the one of its name for its kind of interpreter; an empty
// digest takes the name away. The caller holds the lock.
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

// Remove takes the sets of a name away from every interpreter and deletes them. A
// program that is running may miss what it has not imported yet.
func (l *Library) Remove(ctx context.Context, name string) ([]Set, error) {
	if err := private(l.dir); errors.Is(err, fs.ErrNotExist) {
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
		s, _ := l.open(digest) // also one that is not in order goes
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
		WithHint("see that the state directory belongs to you and is not full").WithCause(err)
}

// sweep removes what no interpreter uses: sets that were replaced and what setups
// that were interrupted left. The caller holds the lock.
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
			err = errors.Join(err, removeTree(filepath.Join(l.dir, name)))
		}
	}
	return err
}
