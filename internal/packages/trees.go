package packages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

const (
	manifestVersion = 1
	manifestName    = "manifest.json"
	filesName       = "files.sha256"
	maxManifest     = 4 << 20
	knownTime       = 24 * time.Hour // for so long specs without exact versions mean the same tree
	graceTime       = time.Hour      // a tree that was used in this time is not evicted
)

// manifest describes the content of a tree. It has no time stamp, so that the same files for
// the same target give the same digest.
type manifest struct {
	Version   int               `json:"version"`
	Target    Target            `json:"target"`
	Installed []Installed       `json:"installed"`
	Warnings  []string          `json:"warnings,omitempty"`
	Files     environment.Files `json:"files"`
	Dirs      int               `json:"directories,omitempty"` // made by packages; 0: not known
}

// belowOf returns the directory of a tree that programs see.
func belowOf(lang sandboxmcp.Language) string {
	if lang == sandboxmcp.Node {
		return "node_modules"
	}
	return "site-packages"
}

// seal makes a tree read-only and moves it to the directory that its digest names.
func (p *Packages) seal(ctx context.Context, m manifest, stage string) (Tree, error) {
	files, err := environment.List(ctx, stage, belowOf(m.Target.Language))
	if err != nil {
		return Tree{}, err
	}
	m.Files = files.Files
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return Tree{}, err
	}
	if len(text) > maxManifest { // it could not be read again
		return Tree{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the list of the packages is larger than %d MiB", maxManifest>>20).
			WithHint("install fewer packages at once")
	}
	digest := sum(text)
	for name, data := range map[string][]byte{manifestName: text, filesName: files.Text} {
		if err := p.writeFile(filepath.Join(stage, name), data); err != nil {
			return Tree{}, err
		}
	}
	if err := environment.Protect(stage); err != nil {
		return Tree{}, err
	}
	if err := os.Chmod(stage, 0o755); err != nil { //nolint:gosec // to be moved; every sandbox reads it
		return Tree{}, err
	}
	dir := filepath.Join(p.cfg.Dir, treesDir, digest)
	if t, err := p.Find(digest); err == nil { // made before, or by another process meanwhile
		return t, nil
	} else if _, err := os.Lstat(dir); err == nil {
		if t, err := p.Find(digest); err == nil { // it was made between the two looks
			return t, nil
		}
		if err := p.drop(digest); err != nil {
			return Tree{}, fmt.Errorf("the damaged tree %s cannot be removed: %w", digest, err)
		}
	}
	if err := os.Rename(stage, dir); err != nil {
		if t, e := p.Find(digest); e == nil {
			return t, nil
		}
		return Tree{}, err
	}
	if err := os.Chmod(dir, 0o555); err != nil { //nolint:gosec // as above
		return Tree{}, err
	}
	return p.Find(digest)
}

// Find returns the tree with a digest, such as one that a session or namespace has attached.
// It marks the tree as used. It does not hash the files. It fails with not_found.
func (p *Packages) Find(digest string) (Tree, error) {
	t, err := p.readTree(digest)
	if err != nil {
		return Tree{}, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the packages %s are not installed", sandboxmcp.Quote(digest)).WithCause(err).
			WithHint("install the packages again")
	}
	now := p.cfg.Now()
	_ = os.Chtimes(t.Dir, now, now)
	return t, nil
}

// readTree reads a tree and checks its manifest and the permissions of its directories.
func (p *Packages) readTree(digest string) (Tree, error) {
	if !isSHA256(digest) {
		return Tree{}, errors.New("it is no digest")
	}
	t := Tree{Digest: digest, Dir: filepath.Join(p.cfg.Dir, treesDir, digest)}
	data, err := plainfile.Read(filepath.Join(t.Dir, manifestName), maxManifest)
	if err != nil {
		return t, err
	}
	var m manifest
	if got := sum(data); got != digest {
		return t, fmt.Errorf("its manifest has the digest %s", got)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return t, err
	}
	if m.Version != manifestVersion {
		return t, fmt.Errorf("its version %d is not known", m.Version)
	}
	t.Target, t.Installed, t.Warnings, t.Bytes = m.Target, m.Installed, m.Warnings, m.Files.Bytes
	t.disk = t.Bytes + int64(m.Files.Count+m.Dirs)*entryBytes
	t.Path = filepath.Join(t.Dir, belowOf(m.Target.Language))
	return t, errors.Join(environment.Private(t.Dir), environment.Private(t.Path))
}

// Verify hashes every file of a tree and fails if one was changed, added or removed.
func (p *Packages) Verify(ctx context.Context, t Tree) error {
	files, err := environment.List(ctx, t.Dir, belowOf(t.Language))
	if err != nil {
		return err
	}
	data, err := plainfile.Read(filepath.Join(t.Dir, manifestName), maxManifest)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if sum(data) != t.Digest || files.SHA256 != m.Files.SHA256 {
		return fmt.Errorf("the files of %s were changed", t.Dir)
	}
	return nil
}

// Trees returns all trees, the most recently used first.
func (p *Packages) Trees() ([]Tree, error) {
	all, err := p.usedTrees()
	if err != nil {
		return nil, err
	}
	trees := make([]Tree, 0, len(all))
	for _, u := range slices.Backward(all) {
		if t, err := p.readTree(u.digest); err == nil { // else it was removed meanwhile
			trees = append(trees, t)
		}
	}
	return trees, nil
}

// usedTree is what decides whether a tree is evicted.
type usedTree struct {
	digest string
	disk   int64 // see Tree
	used   time.Time
}

// usedTrees returns all trees, the least recently used first. It removes temporary directories
// that were left behind. Every installation asks for the trees, and the manifests of all trees can have gigabytes. So it reads
// each manifest once, and keeps of it how large the tree is: the digest names the content.
func (p *Packages) usedTrees() ([]usedTree, error) {
	entries, err := os.ReadDir(filepath.Join(p.cfg.Dir, treesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, broken(err)
	}
	var all []usedTree
	next := make(map[string]int64, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if p.cfg.Now().Sub(info.ModTime()) > tempAge {
				_ = environment.RemoveTree(filepath.Join(p.cfg.Dir, treesDir, e.Name()))
			}
			continue
		}
		disk, err := p.sizeOf(e.Name())
		if err != nil {
			p.cfg.Logger.Warn("installed packages are not used", "tree", e.Name(), "error", err)
			if isSHA256(e.Name()) && p.cfg.Now().Sub(info.ModTime()) > graceTime { // nothing else would remove it, or count its bytes
				_ = p.drop(e.Name())
			}
			continue
		}
		next[e.Name()] = disk
		all = append(all, usedTree{e.Name(), disk, info.ModTime()})
	}
	p.sizes.Store(&next)
	slices.SortFunc(all, func(a, b usedTree) int { return a.used.Compare(b.used) })
	return all, nil
}

// sizeOf returns how large a tree is on the disk.
func (p *Packages) sizeOf(digest string) (int64, error) {
	if known := p.sizes.Load(); known != nil {
		if disk, ok := (*known)[digest]; ok {
			return disk, nil
		}
	}
	t, err := p.readTree(digest)
	return t.disk, err
}

// Hold keeps a tree from being removed, by this and other processes, until release is called.
// A caller holds the trees of its live sandboxes. The tree need not exist.
func (p *Packages) Hold(digest string) (release func(), err error) {
	if !isSHA256(digest) {
		return nil, broken(errors.New("it is no digest"))
	}
	f, err := p.lockFile(digest, false)
	if err != nil {
		return nil, broken(err)
	}
	return func() { _ = f.Close() }, nil
}

var errHeld = errors.New("a process uses it")

// Remove deletes a tree. It fails with not_found if there is none, and with session_busy if a
// process holds it.
func (p *Packages) Remove(digest string) error {
	if !isSHA256(digest) {
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is no digest of installed packages", sandboxmcp.Quote(digest))
	}
	dir := filepath.Join(p.cfg.Dir, treesDir, digest)
	if _, err := os.Lstat(dir); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no installed packages have the digest %s", digest)
	}
	err := p.drop(digest)
	if errors.Is(err, errHeld) {
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "a session uses these packages").WithHint("close the session first")
	}
	if err != nil {
		return broken(err)
	}
	return nil
}

// drop deletes a tree that no process holds. It is renamed first, so that an incomplete tree
// is never visible.
func (p *Packages) drop(digest string) error {
	f, err := p.lockFile(digest, true)
	if err != nil {
		return err
	}
	defer f.Close()
	dir := filepath.Join(p.cfg.Dir, treesDir, digest)
	gone := filepath.Join(p.cfg.Dir, treesDir, tempPrefix+digest)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // to be moved and removed
		return err
	}
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	return environment.RemoveTree(gone)
}

// hasRoom fails if the trees have far more bytes than MaxCache. Trees of the last hour are not
// evicted, so that a caller who installs without end would fill the disk.
func (p *Packages) hasRoom(ctx context.Context) error {
	if total := p.evict(ctx, ""); total > crowded*p.cfg.MaxCache {
		return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "packages that were installed in the last hour have %d MiB; no more are installed", total>>20).
			WithHint("use what is installed, or install later")
	}
	return nil
}

// evict removes trees until all have at most MaxCache bytes, of those that were not used for an hour the
// oldest first. Trees that no namespace keeps go before others. Then it takes from the namespace whose
// trees have most bytes, so that one that installs much takes nothing from others. It returns how many
// bytes the rest has.
func (p *Packages) evict(ctx context.Context, keep string) (total int64) {
	all, err := p.usedTrees()
	if err != nil {
		return 0
	}
	for _, t := range all {
		total += t.disk
	}
	if total <= p.cfg.MaxCache {
		return total
	}
	s, err := p.shares(ctx, all)
	if err != nil {
		p.cfg.Logger.Warn("old packages are not removed", "error", err)
		return total
	}
	for total > p.cfg.MaxCache {
		i := s.next(all)
		if i < 0 {
			break
		}
		t := all[i]
		all = slices.Delete(all, i, i+1)
		if t.digest == keep || p.cfg.Now().Sub(t.used) < graceTime {
			continue
		}
		switch err := p.drop(t.digest); {
		case err == nil:
			total -= t.disk
			s.take(t, -t.disk)
		case !errors.Is(err, errHeld):
			p.cfg.Logger.Warn("old packages are not removed", "tree", t.digest, "error", err)
		}
	}
	return total
}

// shares says how many bytes of trees each namespace keeps.
type shares struct {
	owners map[string][]string // the namespaces that keep a tree, by its digest
	bytes  map[string]int64    // of a namespace
}

func (p *Packages) shares(ctx context.Context, all []usedTree) (s shares, err error) {
	s.bytes = map[string]int64{}
	if p.cfg.Owners == nil {
		return s, nil
	}
	if s.owners, err = p.cfg.Owners(ctx); err != nil {
		return s, err
	}
	for _, t := range all {
		s.take(t, t.disk)
	}
	return s, nil
}

// take adds bytes to the share of each namespace that keeps a tree.
func (s shares) take(t usedTree, bytes int64) {
	for _, who := range s.owners[t.digest] {
		s.bytes[who] += bytes
	}
}

// less compares two namespaces by their shares.
func (s shares) less(a, b string) int {
	return cmp.Or(cmp.Compare(s.bytes[a], s.bytes[b]), strings.Compare(a, b))
}

// next returns the index of the tree to remove, or -1. A tree that no namespace keeps comes first, and then one
// of the namespace with the largest share. If several namespaces keep a tree, it counts for the smallest of them.
func (s shares) next(all []usedTree) int {
	if i := slices.IndexFunc(all, func(t usedTree) bool { return len(s.owners[t.digest]) == 0 }); i >= 0 || len(s.bytes) == 0 {
		return i
	}
	largest := slices.MaxFunc(slices.Collect(maps.Keys(s.bytes)), s.less)
	return slices.IndexFunc(all, func(t usedTree) bool { return slices.MinFunc(s.owners[t.digest], s.less) == largest })
}

// asked says which tree answers an order.
type asked struct {
	Digest string    `json:"digest"`
	Made   time.Time `json:"made"`
	Exact  bool      `json:"exact"` // the order names exact versions, so that the answer stays right
}

// orderKey names an order. Specs in another order are the same order.
func orderKey(o Order, indexes []string, p Policy) string {
	var specs []string
	for _, s := range o.Specs {
		slices.Sort(s.Extras)
		specs = append(specs, s.text(o.Language))
	}
	slices.Sort(specs)
	text, err := json.Marshal([]any{"order", o.Target, slices.Compact(specs), indexes, p.MinAge})
	if err != nil {
		return ""
	}
	return sum(text)
}

// pinsKey names the content of a tree, and what is told of it: two indexes may list one file, and
// describe it differently.
func pinsKey(t Target, pins []pin) string {
	h := sha256.New()
	fmt.Fprintf(h, "pins\n%q\n", []string{string(t.Language), t.Runtime, t.Platform})
	for _, p := range pins {
		fmt.Fprintf(h, "%q\n", []string{p.path, p.pkg, p.name, p.digest.name(), p.index, p.core, strconv.FormatBool(p.bundle), strconv.FormatBool(p.direct)})
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (p *Packages) askedPath(key string) string {
	return filepath.Join(p.cfg.Dir, askedDir, key+".json")
}

func (p *Packages) writeAsked(key string, a asked) {
	a.Made = p.cfg.Now().UTC().Round(0)
	data, err := json.Marshal(a)
	if err == nil {
		err = p.writeFile(p.askedPath(key), data)
	}
	if err != nil {
		p.cfg.Logger.Warn("which packages were asked for is not kept", "error", err)
	}
}

// openAsked returns the tree of a key, if it is not too old.
func (p *Packages) openAsked(key string) (Tree, bool) {
	data, err := plainfile.Read(p.askedPath(key), 64<<10)
	var a asked
	if err != nil || json.Unmarshal(data, &a) != nil {
		return Tree{}, false
	}
	if age := p.cfg.Now().Sub(a.Made); !a.Exact && (age < 0 || age > knownTime) {
		return Tree{}, false
	}
	t, err := p.Find(a.Digest)
	return t, err == nil
}

// remember keeps that a tree answers an order.
func (p *Packages) remember(o Order, c *client, t Tree) {
	exact := !slices.ContainsFunc(o.Specs, func(s Spec) bool { return !s.exact(o.Language) })
	p.writeAsked(orderKey(o, c.names(), p.policy()), asked{Digest: t.Digest, Exact: exact})
}

// Known returns the tree that answered the same order before. It needs no network and takes a
// few milliseconds. It returns false if there is none, if it is damaged, or if it is older
// than a day and the specs do not name exact versions. It applies the policy to everything in
// the tree, so it may call Order.Ask, and its error is that of the policy.
func (p *Packages) Known(ctx context.Context, o Order) (Tree, bool, error) {
	c, err := readClient(o.Language, p.env, p.cfg.Home, p.cfg.Changeable)
	if err != nil {
		return Tree{}, false, err
	}
	t, ok := p.openAsked(orderKey(o, c.names(), p.policy()))
	if !ok {
		return Tree{}, false, nil
	}
	ask := newAsking(p.policy(), o)
	if err := ask.all(ctx, append(o.names(), t.names()...)); err != nil {
		return Tree{}, false, err
	}
	return t, true, nil
}

// names returns the names of the packages in a tree, also of those that tarballs contain.
func (t Tree) names() (all []string) {
	for _, one := range t.Installed {
		all = append(append(all, one.Name), one.Bundled...)
	}
	return all
}

// names returns the names of the packages that were asked for.
func (o Order) names() []string {
	all := make([]string, 0, len(o.Specs))
	for _, s := range o.Specs {
		all = append(all, s.Name)
	}
	return all
}

// Warnings returns warnings about the names in an order. A name that is close to that of a well-known package may be
// an imitation. A package with the name of a module may not be the one that has the module.
func (o Order) Warnings() []string {
	var all []string
	for _, s := range o.Specs {
		if p := pynames.Package(s.Name); p != "" && o.Language == sandboxmcp.Python && environment.Normal(p) != s.Name {
			all = append(all, fmt.Sprintf("the module %s comes with the package %s", s.Name, p))
			continue
		}
		if near := resembles(o.Language, s.Name); near != "" {
			all = append(all, fmt.Sprintf("%s is not the well-known package %s; check that it is the one you mean", s.Name, near))
		}
	}
	return all
}
