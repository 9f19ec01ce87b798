package environment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Order describes an installation.
type Order struct {
	Recipe  Recipe
	Python  Python
	Env     []string     // the user's environment, for pip
	Avoid   string       // directory without links, whose programs are not used; empty: none
	Lock    []byte       // lock that the wheels have to match; nil: the stored lock, if it exists
	Upgrade bool         // ignore the stored lock
	Hurry   bool         // do not retry if the index does not answer
	Say     func(string) // reports progress; may be nil
}

// Report is the result of an installation.
type Report struct {
	Set     Set
	Already bool   // the set was installed before and is undamaged
	Pip     string // version of the pip that has fetched wheels; empty: none were fetched
	Fetched int64  // bytes of wheels
	Lock    []byte
}

// Install installs a set and makes it active for an interpreter. If an active set matches
// the lock and its files have the right hashes, Install changes nothing.
func (l *Library) Install(ctx context.Context, o Order) (Report, error) {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	if err = l.sweep(); err != nil {
		return Report{}, broken(err)
	}
	kept := filepath.Join(l.dir, lockFile(o.Recipe.Name, o.Python.Tag()))
	if o.Lock == nil && !o.Upgrade {
		if o.Lock, err = readOwn(kept, maxManifest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Report{}, broken(err)
		}
	}
	var pins []pin
	if o.Lock != nil {
		if pins, err = readLock(o.Lock); err != nil {
			return Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the lock cannot be used: %s", err).
				WithHint("use a file that --write-lock has written")
		}
		if tag := madeFor(o.Lock); tag != "" && tag != o.Python.Tag() {
			return Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the lock is for %s, but %s is %s", tag, o.Python.Path, o.Python.Tag()).
				WithHint("make a lock for that interpreter with --write-lock")
		}
		if r, ok := l.already(ctx, o, pins); ok {
			return r, nil
		}
	}
	stage, err := os.MkdirTemp(l.dir, stagePrefix)
	if err != nil {
		return Report{}, broken(err)
	}
	defer func() { _ = RemoveTree(stage) }()
	r, err := l.build(ctx, o, pins, stage)
	if err != nil {
		return Report{}, err
	}
	if err := errors.Join(replace(kept, r.Lock), l.activate(o.Recipe.Name, r.Set.Python.Tag, r.Set.Digest)); err != nil {
		return Report{}, broken(err)
	}
	return r, nil
}

// already returns the active set if it matches the lock and is undamaged.
func (l *Library) already(ctx context.Context, o Order, pins []pin) (Report, bool) {
	for _, s := range l.Active(o.Python) {
		if s.Name != o.Recipe.Name || fits(s.Wheels, pins) != nil {
			continue
		}
		if err := l.Verify(ctx, s); err != nil {
			o.Say("the installed set is damaged (" + err.Error() + ") and is installed again")
			return Report{}, false
		}
		return Report{Set: s, Already: true, Lock: writeLock(s.Name, s.Python, s.Wheels)}, true
	}
	return Report{}, false
}

// build makes a set in the directory stage and moves it to its final place.
func (l *Library) build(ctx context.Context, o Order, pins []pin, stage string) (Report, error) {
	p, err := findPip(ctx, o, stage)
	if err != nil {
		return Report{}, err
	}
	fetched, set := filepath.Join(stage, "wheels"), filepath.Join(stage, "set")
	site := filepath.Join(set, sitePackages)
	for _, dir := range []string{fetched, set, site, filepath.Join(set, cacheName)} {
		if err = os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // every sandbox reads it
			return Report{}, broken(err)
		}
	}
	o.Say(fmt.Sprintf("fetching %s with pip %s", strings.Join(o.Recipe.Packages, ", "), p.version))
	if err = p.download(ctx, o, o.Lock, fetched); err != nil {
		return Report{}, failed(ctx, err)
	}
	m := Manifest{Version: manifestVersion, Name: o.Recipe.Name, Requested: o.Recipe.Packages, Python: p.built}
	r := Report{Pip: p.version}
	if m.Wheels, r.Fetched, err = wheelsIn(fetched); err == nil && pins != nil {
		err = fits(m.Wheels, pins)
	}
	if err != nil {
		return Report{}, failed(ctx, err)
	}
	r.Lock = writeLock(m.Name, m.Python, m.Wheels)
	o.Say(fmt.Sprintf("installing %d wheels, %d MiB", len(m.Wheels), r.Fetched>>20))
	if err = p.install(ctx, fetched, r.Lock, site); err != nil {
		return Report{}, failed(ctx, err)
	}
	if err = removeUnseen(site, p.library); err != nil {
		return Report{}, broken(err)
	}
	o.Say("compiling")
	if err = p.compile(ctx, site); err != nil {
		return Report{}, failed(ctx, err)
	}
	r.Set, err = l.seal(ctx, m, set)
	if err != nil && ctx.Err() != nil {
		return Report{}, cancelled(ctx)
	} else if err != nil {
		return Report{}, broken(err)
	}
	return r, nil
}

// startup matches files that Python executes at the start of programs that see a set, whatever they import.
var startup = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:.*\.pth|(?:sitecustomize|usercustomize|apport_python_hook)(?:\..*)?)$`)
})

// removeUnseen removes what no program is to see of a set: command line programs, which are not in PATH, and what
// would be executed in programs that import nothing of it. An interpreter that a program starts looks for modules in
// sets before its own library.
func removeUnseen(site string, library []string) error {
	all, err := os.ReadDir(site)
	if err != nil {
		return err
	}
	for _, e := range all {
		module, _, _ := strings.Cut(e.Name(), ".")
		if e.Name() == "bin" || slices.Contains(library, module) || startup().MatchString(e.Name()) {
			if err := RemoveTree(filepath.Join(site, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// wheelsIn hashes the wheels in a directory. It fails if there is any other file.
func wheelsIn(dir string) ([]Wheel, int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	var wheels []Wheel
	var all int64
	for _, e := range entries {
		w, err := ParseWheel(e.Name())
		if err != nil {
			return nil, 0, err
		}
		s, err := hashFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, 0, err
		}
		w.SHA256, w.Bytes = s.hex, s.size
		wheels, all = append(wheels, w), all+s.size
	}
	if len(wheels) == 0 {
		return nil, 0, errors.New("no wheel was fetched")
	}
	slices.SortFunc(wheels, func(a, b Wheel) int { return strings.Compare(a.Name, b.Name) })
	return wheels, all, nil
}

// seal writes the listing and the manifest of a set, makes it read-only, and moves it to the
// directory that its digest names.
func (l *Library) seal(ctx context.Context, m Manifest, set string) (Set, error) {
	files, err := List(ctx, set, sitePackages)
	if err != nil {
		return Set{}, err
	}
	m.Files = files.Files
	text, err := m.encode()
	if err != nil {
		return Set{}, err
	}
	s := Set{Manifest: m, Digest: digestOf(text)}
	s.Dir = filepath.Join(l.dir, s.Digest)
	err = errors.Join(put(filepath.Join(set, filesName), files.Text, 0o444), put(filepath.Join(set, manifestName), text, 0o444))
	if err != nil {
		return Set{}, err
	}
	if err := Protect(set); err != nil {
		return Set{}, err
	}
	if err := os.Chmod(set, 0o755); err != nil { //nolint:gosec // to be moved; every sandbox reads it
		return Set{}, err
	}
	if _, err := os.Lstat(s.Dir); err == nil { // a damaged set with the same digest
		if err := RemoveTree(s.Dir); err != nil {
			return Set{}, err
		}
	}
	if err := os.Rename(set, s.Dir); err != nil {
		return Set{}, err
	}
	return s, os.Chmod(s.Dir, 0o555) //nolint:gosec // as above
}

// cacheForm matches the files that Keep accepts: only matplotlib's font list, which every
// run that draws would otherwise rebuild.
var cacheForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^fontlist-v[0-9.]{1,20}\.json$`) })

const maxCache = 4 << 20 // bytes

// Keep adds a file to the caches of a set, for later programs. The file comes from a sandbox
// and is shown only in sandboxes, so it need not be trusted.
func (l *Library) Keep(s Set, name string, data []byte) error {
	if !cacheForm().MatchString(name) || len(data) > maxCache {
		return fmt.Errorf("%q is not a cache file that may be kept", name)
	}
	dir := filepath.Join(s.Dir, cacheName)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // every sandbox reads it
		return err
	}
	err := replace(filepath.Join(dir, name), data)
	if err == nil {
		err = os.Chmod(filepath.Join(dir, name), 0o444) //nolint:gosec // as above
	}
	return errors.Join(err, os.Chmod(dir, 0o555)) //nolint:gosec // as above
}

// Discard removes a set that does not work with its interpreter.
func (l *Library) Discard(ctx context.Context, s Set) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(l.activate(s.Name, s.Python.Tag, ""), remove(filepath.Join(l.dir, lockFile(s.Name, s.Python.Tag))), l.sweep())
}
