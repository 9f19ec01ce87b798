package engine

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// treeOf returns a tree as interpreters see it.
func treeOf(t packages.Tree) interpreter.Installed {
	names := make([]string, 0, len(t.Installed))
	for _, p := range t.Installed {
		names = append(names, p.Name)
	}
	return interpreter.NewInstalled(t.Language, t.Dir, t.Digest, names)
}

// handOver gives the packages of an installation to its session, or to later runs of the
// namespace, and records that.
func (e *Engine) handOver(ctx context.Context, i *installation, live *liveSession, began time.Time) error {
	if live != nil {
		if err := live.show(ctx, treeOf(i.tree)); err != nil {
			return err
		}
		if err := e.store.Update(context.WithoutCancel(ctx), e.installOp(i, began)); err != nil {
			return err
		}
	} else {
		set := installed.Set{Language: i.language, Digest: i.tree.Digest, Requested: i.names}
		if err := e.kept.Add(context.WithoutCancel(ctx), i.who.Namespace, set, e.installOp(i, began)); err != nil {
			return err
		}
	}
	e.installDone(i)
	return nil
}

// installDone is called once the record has the entry of an installation that succeeded.
func (e *Engine) installDone(i *installation) {
	if i.listed {
		e.named.add(i.who.Namespace, i.tree.Digest, e.cfg.Now())
	}
	e.events.Emit(event.Installed(i.who.Namespace, i.session, i.language, i.versions()))
}

// versions lists the packages of an installation, with their versions.
func (i *installation) versions() []string {
	all := make([]string, 0, len(i.tree.Installed))
	for _, p := range i.tree.Installed {
		if i.language == sandboxmcp.Node {
			all = append(all, p.Name+"@"+p.Version)
		} else {
			all = append(all, p.Name+"=="+p.Version)
		}
	}
	return all
}

// sbomLine is a package in the record.
type sbomLine struct {
	PURL    string `json:"purl"`
	SHA256  string `json:"sha256"`
	License string `json:"license,omitempty"`
	Index   string `json:"index,omitempty"`
	Script  bool   `json:"script_not_run,omitempty"`
}

// Bounds of what the record repeats. The list of 1 400 packages has 670 KB, entries are kept for good, and packages that are known
// are installed in milliseconds.
const (
	fewPackages = 20             // so many are named each time
	namedAgain  = 24 * time.Hour // the record names the packages of a tree again after this time
	maxNamed    = 4096           // trees of namespaces that are remembered
)

// named remembers the trees whose packages the record has named for a namespace. Later entries name the tree by its digest
// alone. The zero value remembers none.
type named struct {
	mu sync.Mutex
	at map[namedTree]time.Time
}

type namedTree struct {
	ns     sandboxmcp.Namespace
	digest string
}

// lately reports whether an entry of the record has named the packages of a tree.
func (n *named) lately(ns sandboxmcp.Namespace, digest string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.at[namedTree{ns, digest}]
	return ok && now.Sub(at).Abs() < namedAgain
}

// add remembers that an entry has named the packages of a tree. It is in the record, so that no later entry relies on one that
// could not be written.
func (n *named) add(ns sandboxmcp.Namespace, digest string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil || len(n.at) >= maxNamed {
		n.at = map[namedTree]time.Time{}
	}
	n.at[namedTree{ns, digest}] = now
}

// intent is the audit entry of an installation that is about to ask the index.
func (i *installation) intent() *sandboxmcp.AuditEntry {
	return &sandboxmcp.AuditEntry{
		Action: "install_package", Phase: sandboxmcp.PhaseIntent, RequestID: i.request, SessionID: i.session, Language: i.language,
		Namespace: i.who.Namespace, Actor: i.who.Actor, Detail: string(i.language) + ": " + i.short(), Metadata: map[string]any{"requested": i.names},
	}
}

// installEntry is the audit entry of an installation that ended with err.
func (e *Engine) installEntry(i *installation, began time.Time, err error) *sandboxmcp.AuditEntry {
	success, took := err == nil, milliseconds(e.cfg.Now().Sub(began))
	detail := string(i.language) + ": " + strings.Join(i.versions(), " ")
	meta := map[string]any{"requested": i.names}
	if err != nil {
		detail = string(i.language) + ": " + string(sandboxmcp.CodeOf(err))
	} else if meta["tree"] = i.tree.Digest; len(i.tree.Installed) > fewPackages && e.named.lately(i.who.Namespace, i.tree.Digest, e.cfg.Now()) {
		meta["packages_total"] = len(i.tree.Installed)
	} else {
		i.listed = len(i.tree.Installed) > fewPackages
		lines := make([]sbomLine, 0, len(i.tree.Installed))
		for _, p := range i.tree.Installed {
			lines = append(lines, sbomLine{p.PURL, p.SHA256, p.License, p.Index, p.Script})
		}
		meta["packages"] = lines
	}
	if len(i.hosts) > 0 {
		meta["hosts"] = i.hosts
	}
	if len(i.rejected) > 0 {
		meta["rejected"] = i.rejected
	}
	const most = 500
	if len(detail) > most {
		detail = detail[:strings.LastIndex(detail[:most], " ")] + " and more"
	}
	return &sandboxmcp.AuditEntry{
		Action: "install_package", Phase: sandboxmcp.PhaseOutcome, RequestID: i.request, SessionID: i.session, Language: i.language,
		Namespace: i.who.Namespace, Actor: i.who.Actor, Success: &success, DurationMS: &took, Detail: detail, Metadata: meta,
	}
}

func (e *Engine) installOp(i *installation, began time.Time) store.Op {
	return e.audit.Op(e.installEntry(i, began, nil))
}

// installFailed records an installation that failed, and returns its error.
func (e *Engine) installFailed(ctx context.Context, i *installation, began time.Time, err error) error {
	if _, lost := e.audit.Append(context.WithoutCancel(ctx), *e.installEntry(i, began, err)); lost != nil {
		return lost
	}
	return err
}

// answer describes an installation that succeeded.
func (i *installation) answer() sandboxmcp.Installation {
	a := sandboxmcp.Installation{Success: true, Installed: installedOf(i.tree), Rejected: []sandboxmcp.RejectedPackage{}}
	for _, r := range i.rejected {
		a.Rejected = append(a.Rejected, sandboxmcp.RejectedPackage{Name: r.Name, Reason: r.Reason})
	}
	var direct []string
	for _, p := range i.tree.Installed {
		if p.Direct {
			direct = append(direct, p.Name+" "+p.Version)
		}
	}
	a.Output = "Installed " + strings.Join(direct, ", ")
	switch n := len(i.tree.Installed) - len(direct); n {
	case 0:
	case 1:
		a.Output += " and 1 dependency"
	default:
		a.Output += " and " + strconv.Itoa(n) + " dependencies"
	}
	a.Output += " for " + cmp.Or(nameOfSession(i.session), "all later runs of the namespace") + "."
	for _, w := range slices.Concat(i.warnings, i.tree.Warnings) {
		a.Output += "\n" + w
	}
	return a
}

func nameOfSession(id sandboxmcp.SessionID) string {
	if id == "" {
		return ""
	}
	return "session " + string(id)
}

// installedOf lists the packages of a tree.
func installedOf(t packages.Tree) []sandboxmcp.InstalledPackage {
	all := make([]sandboxmcp.InstalledPackage, 0, len(t.Installed))
	for _, p := range t.Installed {
		all = append(all, sandboxmcp.InstalledPackage{Name: p.Name, Version: p.Version, SHA256: p.SHA256})
	}
	return all
}

// PackageSets lists what was installed for all later runs of the namespace, the latest first.
func (e *Engine) PackageSets(ctx context.Context, c sandboxmcp.Caller) ([]sandboxmcp.PackageSet, error) {
	c, err := e.caller(c)
	if err != nil {
		return nil, err
	}
	sets, err := e.kept.Of(ctx, c.Namespace)
	return e.describe(sets), err
}

func (e *Engine) describe(sets []installed.Set) []sandboxmcp.PackageSet {
	all := make([]sandboxmcp.PackageSet, 0, len(sets))
	for _, s := range sets {
		set := sandboxmcp.PackageSet{ID: s.Digest, Language: s.Language, Requested: s.Requested, Packages: []sandboxmcp.InstalledPackage{}, AddedAt: s.AddedAt}
		if t, err := e.packages.Find(s.Digest); err == nil {
			set.Packages, set.Bytes = installedOf(t), t.Bytes
		}
		all = append(all, set)
	}
	return all
}

// RemovePackages removes sets from the later runs of the namespace: those that were asked for by
// the name of a package, or the one with an id or the beginning of one. Runs and sessions that
// see them already are not affected. It fails with not_found if there is none.
func (e *Engine) RemovePackages(ctx context.Context, c sandboxmcp.Caller, name string) ([]sandboxmcp.PackageSet, error) {
	c, err := e.caller(c)
	if err != nil {
		return nil, err
	}
	match := func(s installed.Set) bool {
		specs, unread := packages.Parse(s.Language, s.Requested)
		wanted, bad := packages.Parse(s.Language, []string{name})
		return len(name) >= 8 && strings.HasPrefix(s.Digest, name) ||
			unread == nil && bad == nil && slices.ContainsFunc(specs, func(p packages.Spec) bool { return p.Name == wanted[0].Name })
	}
	record := func(gone []installed.Set) store.Op {
		var ids, requested []string
		for _, s := range gone {
			ids, requested = append(ids, s.Digest), append(requested, s.Requested...)
		}
		success := true
		return e.audit.Op(&sandboxmcp.AuditEntry{
			Action: installed.ActionRemoved, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor, Success: &success,
			Detail: "removed: " + strings.Join(requested, " "), Metadata: map[string]any{"removed": ids, "requested": requested, installed.KeyRemoved: installed.IDs(gone)},
		})
	}
	gone, err := e.kept.Remove(ctx, c.Namespace, match, record)
	if err == nil && len(gone) == 0 {
		err = sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no package %s is installed for the namespace", sandboxmcp.Quote(name)).WithHint("see `sandboxmcp packages list`")
	}
	return e.describe(gone), err
}

// keptTrees returns the trees that all later runs of a namespace see. Trees for another
// interpreter, and trees that are gone from the disk, are left out.
func (e *Engine) keptTrees(ctx context.Context, ns sandboxmcp.Namespace, backend string) ([]interpreter.Installed, error) {
	sets, err := e.kept.Of(ctx, ns)
	if err != nil || len(sets) == 0 {
		return nil, err
	}
	var all []interpreter.Installed
	for _, s := range sets {
		interp, err := e.backends[backend].Interpreter(ctx, s.Language)
		if err != nil {
			continue // without the interpreter, no program can use the packages
		}
		t, err := e.findTree(s.Digest)
		switch {
		case err != nil:
			e.log.Warn("installed packages are gone", "namespace", ns, "packages", s.Requested, "error", err)
		case t.target == target(interp):
			all = append(all, t.Installed)
		}
	}
	return all, nil
}

// foundTree is what runs need of a tree, and when it was read. The tree's list of packages can take megabytes.
type foundTree struct {
	interpreter.Installed

	target packages.Target
	at     time.Time
}

// treeFor is how long findTree remembers a tree. Find marks it as used.
const treeFor = 10 * time.Minute

// findTree is packages.Find with a cache.
func (e *Engine) findTree(digest string) (foundTree, error) {
	now := e.cfg.Now()
	if known, ok := e.trees.Load(digest); ok {
		t, _ := known.(foundTree)
		if _, err := os.Stat(t.Tree.Host); err == nil && now.Sub(t.at) < treeFor {
			return t, nil
		}
	}
	found, err := e.packages.Find(digest)
	if err != nil {
		e.trees.Delete(digest)
		return foundTree{}, err
	}
	t := foundTree{treeOf(found), found.Target, now}
	e.trees.Store(digest, t)
	return t, nil
}

// holdTrees keeps trees on the disk until release is called.
func (e *Engine) holdTrees(trees []interpreter.Installed) (release func(), err error) {
	var all []func()
	release = func() {
		for _, r := range all {
			r()
		}
	}
	for _, t := range trees {
		r, err := e.packages.Hold(t.Digest)
		if err != nil {
			release()
			return nil, err
		}
		all = append(all, r)
	}
	return release, nil
}

// fetchPackages installs the packages that a run asks for. The run's sandbox shows them later.
func (e *Engine) fetchPackages(x *execution) error {
	if len(x.req.Packages) == 0 {
		return nil
	}
	began := e.cfg.Now()
	i := &installation{who: x.who, language: x.req.Language, backend: x.req.Backend, names: x.req.Packages, session: x.req.SessionID, request: x.req.ID, note: x.req.Note}
	defer i.rest()
	err := e.parse(x.ctx, i)
	if err == nil {
		err = e.obtain(x.ctx, i)
	}
	if err == nil {
		err = e.store.Update(x.ctx, e.installOp(i, began))
	}
	if err != nil {
		if x.ctx.Err() != nil {
			err = cancelledError(x.ctx)
		}
		return e.installFailed(x.ctx, i, began, err)
	}
	e.installDone(i)
	t := treeOf(i.tree)
	x.wanted = &t
	return nil
}

// shownTrees returns the trees that the sandbox of a single run or of a new session shows.
func (e *Engine) shownTrees(x *execution) ([]interpreter.Installed, error) {
	trees, err := e.keptTrees(x.ctx, x.who.Namespace, x.req.Backend)
	if x.wanted != nil {
		trees = append([]interpreter.Installed{*x.wanted}, slices.DeleteFunc(trees, x.wanted.Same)...)
	}
	return trees, err
}

// showPackages shows a live session what its run has asked for, and what was installed for the
// namespace meanwhile.
func (e *Engine) showPackages(x *execution) error {
	if x.wanted != nil {
		if err := x.live.show(x.ctx, *x.wanted); err != nil {
			return err
		}
	}
	kept, err := e.keptTrees(x.ctx, x.who.Namespace, x.req.Backend)
	if err != nil {
		return err
	}
	return x.live.showKept(x.ctx, kept)
}

// show shows a tree in the session. Its packages go before those that the session has.
func (r *liveSession) show(ctx context.Context, t interpreter.Installed) error {
	r.treesMu.Lock()
	defer r.treesMu.Unlock()
	if err := r.attachLocked(ctx, t); err != nil {
		return err
	}
	r.own = append([]interpreter.Installed{t}, slices.DeleteFunc(r.own, t.Same)...)
	return nil
}

// showKept shows a live session the trees of its namespace. It leaves out trees that cannot be added to a sandbox that is
// open already.
func (r *liveSession) showKept(ctx context.Context, trees []interpreter.Installed) error {
	r.treesMu.Lock()
	defer r.treesMu.Unlock()
	var shown []interpreter.Installed
	for _, t := range trees {
		err := r.attachLocked(ctx, t)
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeIsolationUnavailable || sandboxmcp.CodeOf(err) == sandboxmcp.CodeInvalidArgument {
			continue
		}
		if err != nil {
			return err
		}
		shown = append(shown, t)
	}
	r.kept = shown
	return nil
}

// maxTrees bounds the trees that a session shows: each is a directory that every import
// searches.
const maxTrees = 2 * installed.MaxSets

// attachLocked attaches a tree to the sandbox, if it is not there. treesMu is held.
func (r *liveSession) attachLocked(ctx context.Context, t interpreter.Installed) error {
	if slices.ContainsFunc(r.attached, t.Same) {
		return nil
	}
	if len(r.attached) >= maxTrees {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "packages were installed into the session %d times; more would slow every import down", len(r.attached)).
			WithHint("install several packages with one call, or create a new session")
	}
	release, err := r.hold([]interpreter.Installed{t})
	if err != nil {
		return err
	}
	if err := r.Sandbox().Attach(ctx, t.Tree); err != nil && !errors.Is(err, fs.ErrExist) {
		release()
		if errors.Is(err, fs.ErrClosed) {
			return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "the session has ended while packages were installed").WithHint("create a new session")
		}
		return err
	}
	r.attached, r.releases = append(r.attached, t), append(r.releases, release)
	return nil
}

// installed returns the trees that the session's programs see, the most important first.
func (r *liveSession) installed() []interpreter.Installed {
	r.treesMu.Lock()
	defer r.treesMu.Unlock()
	all := slices.Clone(r.own)
	for _, t := range r.kept {
		if !slices.ContainsFunc(all, t.Same) {
			all = append(all, t)
		}
	}
	return all
}

// installFor installs packages that a cell asks for, into its session. ctx is that of the cell. A program can ask as
// a cell does, and the names go to the package index. So they must be written in the cell: otherwise a program could
// send there what it has read.
func (e *Engine) installFor(ctx context.Context, x *execution) func(sandboxmcp.Language, []string) kernel.Installed {
	if e.packages.Closed() {
		return nil
	}
	own := x.live.interps[x.req.Language].Sets
	cell := &cellWords{code: x.req.Code}
	return func(l sandboxmcp.Language, names []string) kernel.Installed {
		name, err := cell.unwritten(l, names)
		if err != nil {
			return kernel.Installed{Output: sandboxmcp.AsError(err).Error()}
		}
		if name != "" {
			return kernel.Installed{Output: sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s is not written in the cell, which a package must be", sandboxmcp.Quote(x.secrets.Masker().Text(name))).
				WithHint("write the name of the package in the cell that installs it; its version can be a variable").Error()}
		}
		i := &installation{who: x.who, language: l, names: names, session: x.req.SessionID, request: x.req.ID, beside: true, note: x.req.Note}
		r, err := e.install(ctx, i)
		if err != nil {
			bad := guard.Failure(x.secrets.Masker(), sandboxmcp.AsError(err))
			return kernel.Installed{Output: sandboxmcp.AsError(bad).Error()}
		}
		a := kernel.Installed{OK: true, Output: r.Output}
		a.Packages, a.Modules, a.Env = e.interps.Paths(x.live.installed(), own)
		return a
	}
}
