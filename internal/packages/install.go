package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// Bounds of a resolver's output and of a tree.
const (
	maxOutput = 64 << 20
	maxPins   = 1500
)

// pin is a file that the resolver chose, as the index lists it.
type pin struct {
	file

	index  string
	path   string // node: its directory in the tree
	core   string // python: SHA-256 of the metadata that the resolver saw, if the index gave it
	bundle bool   // node: its tarball contains packages
	direct bool
}

// Install makes the tree from the resolver's output. The output is untrusted: every package
// in it must be listed by the index and be allowed by the policy, and every file must have
// the hash that the index says. If a tree with the same content exists, it is used. Errors
// are those of [Gateway.Failure].
func (g *Gateway) Install(ctx context.Context, output []byte) (Tree, error) {
	return g.finish(ctx, func() ([]pin, error) {
		if len(output) > maxOutput {
			return nil, garbled(errors.New("it is too long"))
		}
		if g.order.Language == sandboxmcp.Node {
			return g.readLock(output)
		}
		return g.readReport(output)
	})
}

// finish makes the tree of pins and remembers it.
func (g *Gateway) finish(ctx context.Context, choose func() ([]pin, error)) (Tree, error) {
	stop := context.AfterFunc(ctx, g.cancel)
	defer stop()
	t, err := g.install(ctx, choose)
	if err != nil {
		if _, ok := errors.AsType[*sandboxmcp.Error](err); !ok {
			err = broken(err)
		}
		g.fail(err)
		return Tree{}, g.Failure(ctx, "")
	}
	g.p.remember(g.order, g.client, t)
	g.p.evict(ctx, t.Digest)
	return t, nil
}

func (g *Gateway) install(ctx context.Context, choose func() ([]pin, error)) (Tree, error) {
	pins, err := choose()
	if err != nil {
		return Tree{}, err
	}
	if err = g.covers(pins); err != nil {
		return Tree{}, err
	}
	names := make([]string, 0, len(pins))
	for _, p := range pins {
		names = append(names, p.pkg)
	}
	if err = g.ask.all(ctx, names); err != nil {
		return Tree{}, err
	}
	slices.SortFunc(pins, func(a, b pin) int { return strings.Compare(a.path+"\x00"+a.pkg, b.path+"\x00"+b.pkg) })
	key := pinsKey(g.order.Target, pins)
	if t, ok := g.p.openAsked(key); ok {
		return t, g.ask.all(ctx, t.names())
	}
	if err = g.p.hasRoom(ctx); err != nil {
		return Tree{}, err
	}
	if err = g.prefetch(pins); err != nil {
		return Tree{}, err
	}
	t, err := g.build(ctx, pins)
	if err != nil {
		return Tree{}, err
	}
	g.p.writeAsked(key, asked{Digest: t.Digest, Exact: true})
	return t, nil
}

// garbled is the error of a resolver's output that cannot be used.
func garbled(err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the resolver's result cannot be used: %s", err).
		WithHint("ask again; if it fails again, use other packages or versions")
}

// covers fails if a package that was asked for is not among the pins.
func (g *Gateway) covers(pins []pin) error {
	if len(pins) == 0 || len(pins) > maxPins {
		return garbled(fmt.Errorf("it names %d packages", len(pins)))
	}
	for _, s := range g.order.Specs {
		found := false
		for i := range pins {
			if pins[i].pkg == s.Name && (pins[i].path == "" || pins[i].path == "node_modules/"+s.Name) {
				pins[i].direct, found = true, true
			}
		}
		if !found {
			return garbled(fmt.Errorf("it does not have %s", s.Name))
		}
	}
	return nil
}

// readReport reads pip's installation report.
func (g *Gateway) readReport(output []byte) ([]pin, error) {
	no := garbled(errors.New("it is no report of pip"))
	var version string
	var install []byte
	err := eachPart(output, func(p part) (err error) {
		switch p.name {
		case "version":
			err = json.Unmarshal(p.raw, &version)
		case "install":
			install = bytes.Clone(p.raw)
		}
		return err
	})
	if err != nil || version != "1" || install == nil {
		return nil, no
	}
	var pins []pin
	seen := map[string]bool{}
	var failed error
	err = eachPart(install, func(p part) error {
		var one pin
		if one, failed = g.reported(p.raw, seen); failed == nil {
			pins = append(pins, one)
		}
		return tooManyPins(pins, failed)
	})
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, no
	}
	return pins, nil
}

// tooManyPins returns err, or an error if there are more pins than a tree may have.
func tooManyPins(pins []pin, err error) error {
	if err == nil && len(pins) > maxPins {
		err = errMembers
	}
	return err
}

// reported returns a wheel of pip's report. seen are the packages of those before it.
func (g *Gateway) reported(raw []byte, seen map[string]bool) (pin, error) {
	var e struct {
		Download struct {
			URL string `json:"url"`
		} `json:"download_info"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return pin{}, garbled(err)
	}
	where, _, _ := strings.Cut(e.Download.URL, "#")
	dir, name := path.Split(where)
	wheel, err := environment.ParseWheel(name)
	sum := path.Base(dir)
	if err != nil || seen[wheel.Name] || !isName(sandboxmcp.Python, wheel.Name) {
		return pin{}, garbled(fmt.Errorf("%s is no wheel, or one of several of a package", sandboxmcp.Quote(name)))
	}
	seen[wheel.Name] = true
	f, pr, err := g.findWheel(wheel.Name, name, sum)
	if errors.Is(err, errNotListed) {
		return pin{}, garbled(fmt.Errorf("the index does not list %s", sandboxmcp.Quote(name)))
	}
	if err != nil {
		return pin{}, err
	}
	return pin{file: f.file, index: pr.index, core: f.core}, nil
}

// lockEntry is a package in npm's lock.
type lockEntry struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Link     bool     `json:"link"`
	InBundle bool     `json:"inBundle"`
	Optional bool     `json:"optional"`
	OS       []string `json:"os"`
	CPU      []string `json:"cpu"`
	Libc     []string `json:"libc"`
}

// readLock reads npm's package-lock.json.
func (g *Gateway) readLock(output []byte) ([]pin, error) {
	no := garbled(errors.New("it is no lock of npm"))
	version, packages := 0, []byte("{}")
	err := eachPart(output, func(p part) (err error) {
		switch p.name {
		case "lockfileVersion":
			err = json.Unmarshal(p.raw, &version)
		case "packages":
			packages = bytes.Clone(p.raw)
		}
		return err
	})
	if err != nil || version != 2 && version != 3 {
		return nil, no
	}
	var pins []pin
	seen := map[string]bool{"": true} // the project itself
	var failed error
	err = eachPart(packages, func(p part) error {
		if seen[p.name] {
			return nil
		}
		seen[p.name] = true
		var one *pin
		if one, failed = g.locked(p.name, p.raw); one != nil {
			pins = append(pins, *one)
		}
		return tooManyPins(pins, failed)
	})
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, no
	}
	return pins, nil
}

// locked returns the package at a path of npm's lock; nil: it has no file of its own, or is for
// another platform.
func (g *Gateway) locked(where string, raw []byte) (*pin, error) {
	var e lockEntry
	if len(raw) > maxVersion || json.Unmarshal(raw, &e) != nil {
		return nil, garbled(fmt.Errorf("its entry %s cannot be read", sandboxmcp.Quote(where)))
	}
	last, ok := modulePath(where)
	if !ok || e.Link {
		return nil, garbled(fmt.Errorf("%s is no package of an index", sandboxmcp.Quote(where)))
	}
	if e.InBundle || e.Optional && !e.fits(g.order.Platform) {
		return nil, nil //nolint:nilnil // no failure
	}
	name := or(e.Name, last)
	if !isName(sandboxmcp.Node, name) {
		return nil, garbled(fmt.Errorf("%s is no name of a package", sandboxmcp.Quote(name)))
	}
	pr, err := g.project(name)
	if err != nil && !errors.Is(err, errNotListed) {
		return nil, err
	}
	var f file
	if pr != nil && pr.npm != nil {
		f, ok = pr.npm.dist[e.Version]
	}
	if pr == nil || !ok {
		return nil, garbled(fmt.Errorf("the index does not list %s %s", name, sandboxmcp.Quote(e.Version)))
	}
	v := pr.npm.Versions[e.Version]
	return &pin{file: f, index: pr.index, path: where, bundle: bundles(v.Bundle) || bundles(v.Bundled)}, nil
}

// bundles reports whether a bundleDependencies field names packages.
func bundles(raw json.RawMessage) bool {
	text := strings.TrimSpace(string(raw))
	return text != "" && text != "false" && text != "null" && text != "[]"
}

// modulePath checks the key of a package in a lock, and returns the name of its directory.
func modulePath(where string) (name string, ok bool) {
	rest := where
	for depth := 0; rest != ""; depth++ {
		var found bool
		if rest, found = strings.CutPrefix(rest, "node_modules/"); !found || depth > 40 {
			return "", false
		}
		if name, rest, found = strings.Cut(rest, "/node_modules/"); found {
			rest = "node_modules/" + rest
		}
		if !isName(sandboxmcp.Node, name) {
			return "", false
		}
	}
	return name, name != ""
}

// fits reports whether a package is for a platform such as linux-x64-glibc.
func (e lockEntry) fits(platform string) bool {
	parts := append(strings.Split(platform, "-"), "", "", "")
	return platform == "" || admits(e.OS, parts[0]) && admits(e.CPU, parts[1]) && (parts[2] == "" || admits(e.Libc, parts[2]))
}

func admits(list []string, value string) bool {
	if slices.Contains(list, "!"+value) {
		return false
	}
	positive := slices.ContainsFunc(list, func(s string) bool { return !strings.HasPrefix(s, "!") })
	return !positive || slices.Contains(list, value) || slices.Contains(list, "any")
}

// prefetch fetches the files of pins that are not in the cache.
func (g *Gateway) prefetch(pins []pin) error {
	var missing []pin
	seen := map[string]bool{}
	for _, p := range pins {
		name := p.digest.name()
		if _, err := os.Lstat(filepath.Join(g.p.cfg.Dir, blobsDir, name)); errors.Is(err, fs.ErrNotExist) && !seen[name] {
			missing = append(missing, p)
		}
		seen[name] = true
	}
	next := make(chan pin)
	errs := make([]error, maxParallel)
	var done sync.WaitGroup
	for w := range errs {
		done.Go(func() {
			for p := range next {
				if errs[w] != nil {
					continue
				}
				b, err := g.fetchBlob(g.ctx, p.file)
				if err == nil {
					err = b.Close()
				}
				errs[w] = err
			}
		})
	}
	for _, p := range missing {
		next <- p
	}
	close(next)
	done.Wait()
	for _, err := range errs { // one failure is enough
		if err != nil {
			return err
		}
	}
	return nil
}

// build unpacks pins into a new tree.
func (g *Gateway) build(ctx context.Context, pins []pin) (Tree, error) {
	stage, err := os.MkdirTemp(filepath.Join(g.p.cfg.Dir, treesDir), tempPrefix)
	if err != nil {
		return Tree{}, broken(err)
	}
	defer func() { _ = environment.RemoveTree(stage) }()
	below := belowOf(g.order.Language)
	if err = os.Mkdir(filepath.Join(stage, below), 0o755); err != nil { //nolint:gosec // every sandbox reads it
		return Tree{}, broken(err)
	}
	root, err := os.OpenRoot(filepath.Join(stage, below))
	if err != nil {
		return Tree{}, broken(err)
	}
	defer root.Close()
	m := manifest{Version: manifestVersion, Target: g.order.Target}
	u := &unpacker{root: root, made: map[string]bool{}, owner: map[string]string{}, spare: g.p.cfg.Spare}
	defer u.close()
	var bundled []string
	for i, p := range pins {
		if g.ctx.Err() != nil {
			return Tree{}, cancelled()
		}
		var one Installed
		if one, err = g.unpack(u, p); err != nil {
			return Tree{}, err
		}
		m.Installed = append(m.Installed, one)
		bundled = append(bundled, one.Bundled...)
		g.note(Event{Text: fmt.Sprintf("%s %s: unpacked", p.pkg, p.version), Package: p.pkg, Done: i + 1, Total: len(pins)})
	}
	if err = g.ask.all(ctx, bundled); err != nil {
		return Tree{}, err
	}
	m.Warnings, m.Dirs = u.told(), len(u.made)
	slices.SortStableFunc(m.Installed, func(a, b Installed) int { return strings.Compare(a.Name, b.Name) })
	if g.order.Compile != nil {
		if err := readable(filepath.Join(stage, below)); err != nil {
			return Tree{}, err
		}
		if err := g.order.Compile(ctx, filepath.Join(stage, below)); err != nil {
			return Tree{}, err
		}
	}
	return g.p.seal(ctx, m, stage)
}

// readable makes everything below a directory readable for the users of sandboxes, whatever the
// process's umask is.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return os.Chmod(p, mode) //nolint:gosec // no other user can change dir, and it has no links
	})
}

// unpack unpacks one package and describes it.
func (g *Gateway) unpack(u *unpacker, p pin) (Installed, error) {
	b, err := g.fetchBlob(g.ctx, p.file)
	if err != nil {
		return Installed{}, err
	}
	defer b.Close()
	one := Installed{Name: p.pkg, Version: p.version, SHA256: b.sha256, File: p.name, Bytes: b.size, Index: p.index, Path: p.path, Direct: p.direct}
	if g.order.Language == sandboxmcp.Node {
		one.PURL = "pkg:npm/" + strings.Replace(p.pkg, "@", "%40", 1) + "@" + p.version
		err = u.npm(b, p, &one)
	} else {
		one.PURL = "pkg:pypi/" + p.pkg + "@" + p.version
		err = u.wheel(b, p, &one)
	}
	for _, name := range one.Bundled {
		if denied := g.ask.possible(name); err == nil && denied != nil {
			err = unfit("it contains %s, and %s", sandboxmcp.Quote(name), sandboxmcp.AsError(denied).Message)
		}
	}
	if bad, ok := errors.AsType[*unfitError](err); ok {
		return one, g.unfit(p.file, bad.why)
	}
	if _, told := errors.AsType[*sandboxmcp.Error](err); told {
		return one, err
	}
	if err != nil {
		return one, broken(err)
	}
	return one, nil
}
