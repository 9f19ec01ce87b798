package packages_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// bundling publishes a package whose tarball contains others, and returns npm's lock of it.
func bundling(t *testing.T, x *testIndex, files ...entry) []byte {
	t.Helper()
	x.npm(t, "host", "1.0.0", "", files...)
	x.files["host"][0].fields = map[string]any{"bundleDependencies": []string{"evil"}}
	return lock(t, "node_modules/host", `{"version":"1.0.0"}`, "node_modules/host/node_modules/evil", `{"version":"1.0.0","inBundle":true}`)
}

// TestPolicyHoldsForBundledPackages: a package that the policy excludes is not installed as a part of
// the tarball of another one either.
func TestPolicyHoldsForBundledPackages(t *testing.T) {
	for name, file := range map[string]string{
		"Bundled": "package/node_modules/evil/index.js",
		"Nested":  "package/node_modules/good/node_modules/evil/index.js",
		"File":    "package/node_modules/evil.js",
		"Scoped":  "package/node_modules/@evil/one/index.js",
		"Inside":  "package/lib/node_modules/EVIL/index.js",
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			output := bundling(t, x, entry{name: file})
			c := cleaned(t, x.config(t))
			c.Policy.Deny = []string{"evil", "@evil/*"}
			g := opened(t, packages.New(c), parse(t, sandboxmcp.Node, "host"))
			_, err := g.Install(t.Context(), output)
			wantCode(t, err, sandboxmcp.CodePackageRejected, "it contains")
			nothingMade(t, c.Dir)
		})
	}
}

// TestPersonsAreAskedForBundledPackages: they are asked as for any other dependency.
func TestPersonsAreAskedForBundledPackages(t *testing.T) {
	x := newIndex(t)
	output := bundling(t, x, entry{name: "package/node_modules/evil/index.js"})
	c := cleaned(t, x.config(t))
	c.Policy = packages.Policy{Default: packages.Ask}
	o := parse(t, sandboxmcp.Node, "host")
	var asked []string
	o.Ask = func(_ context.Context, _ sandboxmcp.Language, names []string) error {
		asked = append(asked, names...)
		if slices.Contains(names, "evil") {
			return sandboxmcp.Errorf(sandboxmcp.CodeApprovalPending, "a person has to allow evil")
		}
		return nil
	}
	g := opened(t, packages.New(c), o)
	_, err := g.Install(t.Context(), output)
	wantCode(t, err, sandboxmcp.CodeApprovalPending, "evil")
	nothingMade(t, c.Dir)
	if want := []string{"host", "evil"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
}

// TestPolicyChangesHoldForBundledPackages: what was installed is not given out again after the policy
// has excluded a part of it.
func TestPolicyChangesHoldForBundledPackages(t *testing.T) {
	x := newIndex(t)
	output := bundling(t, x, entry{name: "package/node_modules/evil/index.js"})
	p := packages.New(cleaned(t, x.config(t)))
	o := parse(t, sandboxmcp.Node, "host@1.0.0")
	tree, err := opened(t, p, o).Install(t.Context(), output)
	if err != nil {
		t.Fatal(err)
	}
	if got := tree.Installed[0].Bundled; !slices.Equal(got, []string{"evil"}) {
		t.Errorf("got %v, want evil", got)
	}
	p.SetPolicy(packages.Policy{Deny: []string{"evil"}})
	_, _, err = p.Known(t.Context(), o)
	wantCode(t, err, sandboxmcp.CodePackageRejected, "evil")
	_, err = opened(t, p, o).Install(t.Context(), output)
	wantCode(t, err, sandboxmcp.CodePackageRejected, "evil")
}

// TestTreesSayWhereTheyAreFrom: two indexes list the same file, and one of them says that it contains
// packages. Each gives its own tree.
func TestTreesSayWhereTheyAreFrom(t *testing.T) {
	first, second := newIndex(t), newIndex(t)
	output := bundling(t, first, entry{name: "package/node_modules/evil/index.js"})
	second.npm(t, "host", "1.0.0", "", entry{name: "package/node_modules/evil/index.js"})
	c := cleaned(t, first.config(t))
	one, err := opened(t, packages.New(c), parse(t, sandboxmcp.Node, "host")).Install(t.Context(), output)
	if err != nil {
		t.Fatal(err)
	}
	c.Env = second.config(t).Env
	two, err := opened(t, packages.New(c), parse(t, sandboxmcp.Node, "host")).Install(t.Context(), output)
	if err != nil {
		t.Fatal(err)
	}
	if one.Digest == two.Digest || len(listing(t, two.Path)) != 1 {
		t.Errorf("got the files %v of the other index's tree", listing(t, two.Path))
	}
}

// TestTreesNameTheirIndex: the index of a package in a tree is the one that listed it.
func TestTreesNameTheirIndex(t *testing.T) {
	first, second := newIndex(t), newIndex(t)
	first.wheel(t, "one", "1.0", entry{name: "one.py"})
	second.wheel(t, "one", "1.0", entry{name: "one.py"})
	c := cleaned(t, first.config(t))
	for _, host := range []string{"127.0.0.1", "localhost"} {
		tree, ok, err := opened(t, packages.New(c), parse(t, sandboxmcp.Python, "one")).Direct(t.Context())
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if got := tree.Installed[0].Index; got != host {
			t.Errorf("got the index %s, want %s", got, host)
		}
		c.Env = []string{"PIP_CONFIG_FILE=/dev/null", "PIP_INDEX_URL=http://localhost:" + portOf(second) + "/simple"}
	}
}

// portOf returns the port of an index.
func portOf(x *testIndex) string { return x.URL[strings.LastIndexByte(x.URL, ':')+1:] }
