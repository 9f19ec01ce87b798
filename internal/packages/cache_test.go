package packages_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// TestOffline: documents and files of the cache serve when the index is gone, and documents are
// asked for again when they are old.
func TestOffline(t *testing.T) {
	x := newIndex(t)
	x.wheel(t, "one", "1.0", entry{name: "one.py"})
	c := cleaned(t, x.config(t))
	now := time.Now()
	c.Now = func() time.Time { return now }
	p := packages.New(c)
	list := func() string {
		g := opened(t, p, parse(t, sandboxmcp.Python, "one"))
		return asks(t, g, "/simple/one/").Body.String()
	}
	list()
	list()
	if n := x.requests("/simple/one/"); n != 1 {
		t.Errorf("got %d requests, want 1: the document is fresh", n)
	}
	now = now.Add(time.Hour)
	x.wheel(t, "one", "2.0", entry{name: "one.py"})
	if body := list(); !strings.Contains(body, "one-2.0") {
		t.Errorf("an old document was used: %s", body)
	}
	now = now.Add(time.Hour)
	if body := list(); !strings.Contains(body, "one-2.0") {
		t.Errorf("not modified: got %s", body)
	}
	g := opened(t, p, parse(t, sandboxmcp.Python, "one==2.0"))
	if _, err := g.Install(t.Context(), report(t, g, "one")); err != nil {
		t.Fatal(err)
	}
	x.Close()
	now = now.Add(time.Hour)
	g = opened(t, p, parse(t, sandboxmcp.Python, "one>1"))
	if _, err := g.Install(t.Context(), report(t, g, "one")); err != nil {
		t.Errorf("without the index: %v", err)
	}
	asks(t, g, "/simple/other/")
	wantCode(t, g.Failure(t.Context(), ""), sandboxmcp.CodeInstallFailed, "cannot be reached")
}

// TestTwoAtOnce: installations that share a directory do not disturb each other.
func TestTwoAtOnce(t *testing.T) {
	x := newIndex(t)
	for i := range 5 {
		x.wheel(t, fmt.Sprintf("p%d", i), "1.0", entry{name: fmt.Sprintf("p%d.py", i), text: strings.Repeat("x", i*1000)})
	}
	c := cleaned(t, x.config(t))
	digests := make([]string, 8)
	errs := make([]error, len(digests))
	var all sync.WaitGroup
	for i := range digests {
		all.Go(func() {
			g, err := packages.New(c).Open(t.Context(), parse(t, sandboxmcp.Python, "p0"))
			if err != nil {
				errs[i] = err
				return
			}
			defer g.Close()
			tree, err := g.Install(t.Context(), report(t, g, "p0", "p1", "p2", "p3", "p4"))
			digests[i], errs[i] = tree.Digest, err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil || len(slices.Compact(digests)) != 1 {
		t.Fatalf("got %v, %v, want one digest", digests, err)
	}
	for _, dir := range []string{"trees", "blobs", "index", "asked"} {
		left, err := filepath.Glob(filepath.Join(c.Dir, dir, ".new-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

// TestCacheIsBounded: the oldest are removed, but nothing that is held or was used just now.
func TestCacheIsBounded(t *testing.T) {
	x := newIndex(t)
	for _, name := range []string{"one", "two", "three"} {
		x.wheel(t, name, "1.0", entry{name: name + ".py", text: strings.Repeat(name, 20_000)})
	}
	c := cleaned(t, x.config(t))
	c.MaxCache = 100_000
	now := time.Now()
	c.Now = func() time.Time { return now }
	p := packages.New(c)
	install := func(name string) packages.Tree {
		t.Helper()
		g := opened(t, p, parse(t, sandboxmcp.Python, name))
		tree, err := g.Install(t.Context(), report(t, g, name))
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * time.Hour)
		return tree
	}
	one := install("one")
	release, err := p.Hold(one.Digest)
	if err != nil {
		t.Fatal(err)
	}
	two := install("two")
	three := install("three")
	if _, err := p.Find(one.Digest); err != nil {
		t.Errorf("a tree that is held was removed: %v", err)
	}
	if _, err := p.Find(two.Digest); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
		t.Errorf("the oldest tree that is not held: got %v, want not_found", err)
	}
	if all, err := p.Trees(); err != nil || len(all) != 2 || all[0].Digest != one.Digest { // it was found last
		t.Errorf("got %d trees, %v", len(all), err)
	}
	wantCode(t, p.Remove(one.Digest), sandboxmcp.CodeSessionBusy, "session")
	release()
	for _, digest := range []string{one.Digest, three.Digest} {
		if err := p.Remove(digest); err != nil {
			t.Error(err)
		}
		wantCode(t, p.Remove(digest), sandboxmcp.CodeNotFound, digest)
	}
	wantCode(t, p.Remove("../x"), sandboxmcp.CodeNotFound, "")
	if left, err := filepath.Glob(filepath.Join(c.Dir, "trees", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestOneThatInstallsMuchTakesNothingFromOthers: trees are removed from the namespace whose trees have
// most bytes, also if another has not used its own for longer.
func TestOneThatInstallsMuchTakesNothingFromOthers(t *testing.T) {
	x := newIndex(t)
	keeps := map[string]string{"one": "modest", "two": "greedy", "six": "greedy", "ten": "greedy"}
	for name := range keeps {
		x.wheel(t, name, "1.0", entry{name: name + ".py", text: strings.Repeat(name, 20_000)})
	}
	c := cleaned(t, x.config(t))
	c.MaxCache = 300_000 // three of them
	now := time.Now()
	c.Now = func() time.Time { return now }
	owners := map[string][]string{}
	c.Owners = func(context.Context) (map[string][]string, error) { return owners, nil }
	p := packages.New(c)
	trees := map[string]packages.Tree{}
	for _, name := range []string{"one", "two", "six", "ten"} {
		g := opened(t, p, parse(t, sandboxmcp.Python, name))
		tree, err := g.Install(t.Context(), report(t, g, name))
		if err != nil {
			t.Fatal(err)
		}
		trees[name], owners[tree.Digest] = tree, []string{keeps[name]}
		now = now.Add(2 * time.Hour)
	}
	for name, want := range map[string]sandboxmcp.Code{"one": "", "two": sandboxmcp.CodeNotFound, "ten": ""} {
		if _, err := p.Find(trees[name].Digest); sandboxmcp.CodeOf(err) != want && (err != nil || want != "") {
			t.Errorf("%s of the %s namespace: got %v, want %q", name, keeps[name], err, want)
		}
	}
}

// TestDamagedCache: what was changed on the disk is not used.
func TestDamagedCache(t *testing.T) {
	x := newIndex(t)
	x.wheel(t, "one", "1.0", entry{name: "one.py", text: "right"})
	c := cleaned(t, x.config(t))
	p := packages.New(c)
	order := parse(t, sandboxmcp.Python, "one")
	g := opened(t, p, order)
	tree, err := g.Install(t.Context(), report(t, g, "one"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(tree.Dir, "manifest.json")
	blob := filepath.Join(c.Dir, "blobs", tree.Installed[0].SHA256)
	for _, name := range []string{manifest, blob} {
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := p.Known(t.Context(), order); ok || err != nil {
		t.Errorf("a damaged tree: got %v, %v", ok, err)
	}
	g = opened(t, p, order)
	tree, err = g.Install(t.Context(), report(t, g, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(t, tree.Path)["one.py"]; got != "right" {
		t.Errorf("got %q", got)
	}
	if n := x.requests("/blob/"); n != 2 {
		t.Errorf("got %d requests for the file, want 2", n)
	}
}
