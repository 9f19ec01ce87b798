package packages_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

func TestSpecs(t *testing.T) {
	for text, want := range map[string]packages.Spec{
		"six":                           {Name: "six"},
		" Six_Two ":                     {Name: "six-two"},
		"six==1.16.0":                   {Name: "six", Versions: "==1.16.0"},
		"six == 1.16.0":                 {Name: "six", Versions: "==1.16.0"},
		"requests[socks,Use_Chardet]>2": {Name: "requests", Extras: []string{"socks", "use-chardet"}, Versions: ">2"},
		"a>=1, <2, !=1.5":               {Name: "a", Versions: ">=1,<2,!=1.5"},
		"a==1.*":                        {Name: "a", Versions: "==1.*"},
	} {
		got, err := packages.Parse(sandboxmcp.Python, []string{text})
		if diff := cmp.Diff([]packages.Spec{want}, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for text, want := range map[string]packages.Spec{
		"left-pad":        {Name: "left-pad"},
		"left-pad@1.3.0":  {Name: "left-pad", Versions: "1.3.0"},
		"@types/node@^20": {Name: "@types/node", Versions: "^20"},
		"express@latest":  {Name: "express", Versions: "latest"},
		"JSONStream":      {Name: "JSONStream"},
		"lodash.merge@~4": {Name: "lodash.merge", Versions: "~4"},
	} {
		got, err := packages.Parse(sandboxmcp.Node, []string{text})
		if diff := cmp.Diff([]packages.Spec{want}, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	for _, lang := range []sandboxmcp.Language{sandboxmcp.Python, sandboxmcp.Node} {
		for _, text := range []string{
			"", " ", "-", "--index-url", "--index-url=http://127.0.0.1/", "-r", "-r /etc/passwd", "git+https://127.0.0.1/x.git", "git+ssh://x/y", "../x", "./x", ".", "..", "/etc/passwd", "x; id", "x && id",
			"$(id)", "http://127.0.0.1/x.whl", "six @ file:///etc/passwd", "file:../x", "six --no-binary :all:", "x\ny", "x\x00y", "six==1.0 --pre", "six;python_version>'3'", "x.whl", "x.tgz", "x.tar.gz",
			"six@file:x", "npm:x", "a@npm:b", "user/repo", "github:a/b", "~/x", "~", "a@../b", "a@http://b", "@a", "@a/", "@../a", "@a/../b", "a[b", "a[-b]", "a==", "a>1<2", "a=1", "ä", "a\u202eb",
			strings.Repeat("a", 400), "a@1.tgz", "a==1.zip", "node_modules@1 2", `a\b`, "C:x", "a,b", "*", "a b",
		} {
			if got, err := packages.Parse(lang, []string{"six", text}); sandboxmcp.CodeOf(err) != sandboxmcp.CodePackageRejected {
				t.Errorf("%s %q: got %v, %v, want package_rejected", lang, text, got, err)
			}
		}
		_, err := packages.Parse(lang, slices.Repeat([]string{"six"}, 51))
		wantCode(t, err, sandboxmcp.CodeInvalidArgument, "50")
		if got, err := packages.Parse(lang, nil); got != nil || err != nil {
			t.Errorf("no specs: got %v, %v", got, err)
		}
	}
	_, err := packages.Parse(sandboxmcp.Shell, []string{"six"})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument, "python or node")
}

// TestPythonPackages: wheels become a read-only tree, with what the index and the wheel say.
func TestPythonPackages(t *testing.T) {
	for _, html := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTML=%v", html), func(t *testing.T) {
			x := newIndex(t)
			x.html = html
			x.wheel(t, "one", "1.0", entry{name: "one.py", text: "import two"})
			x.wheel(t, "two", "2.0", entry{name: "two/__init__.py", text: "x = 2"}, entry{name: "two/run", text: "#!", mode: 0o755}, entry{name: "two-2.0.data/purelib/pure.py", text: "p"},
				entry{name: "two-2.0.data/scripts/two", text: "#!"}, entry{name: "two-2.0.data/data/share/x", text: "d"}, entry{name: "two/__pycache__/x.pyc", text: "c"})
			p := packages.New(cleaned(t, x.config(t)))
			order := parse(t, sandboxmcp.Python, "one")
			var steps atomic.Int32
			order.Note = func(packages.Event) { steps.Add(1) }
			order.Compile = func(_ context.Context, dir string) error {
				return os.WriteFile(filepath.Join(dir, "compiled"), []byte("c"), 0o600)
			}
			g := opened(t, p, order)
			tree, err := g.Install(t.Context(), report(t, g, "one", "two"))
			if err != nil {
				t.Fatal(err)
			}
			files := listing(t, tree.Dir)
			var names []string
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if rest, ok := strings.CutPrefix(filepath.ToSlash(name), "site-packages/"); ok && !strings.Contains(rest, "dist-info") {
					names = append(names, rest)
				}
			}
			if diff := cmp.Diff([]string{"compiled", "one.py", "pure.py", "two/__init__.py", "two/run"}, names); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if tree.Path != filepath.Join(tree.Dir, "site-packages") || len(tree.Installed) != 2 || steps.Load() < 4 {
				t.Errorf("got %+v and %d steps", tree, steps.Load())
			}
			one := tree.Installed[0]
			if one.Name != "one" || one.Version != "1.0" || one.License != "MIT" || one.PURL != "pkg:pypi/one@1.0" || !one.Direct || tree.Installed[1].Direct ||
				one.SHA256 != hash256(x.files["one"][0].data) || one.Index != "127.0.0.1" {
				t.Errorf("got %+v", one)
			}
			if err := p.Verify(t.Context(), tree); err != nil {
				t.Error(err)
			}
			if got := g.Hosts(); !slices.Equal(got, []string{"127.0.0.1"}) {
				t.Errorf("hosts: got %v", got)
			}
		})
	}
}

// TestKnown: the same order needs no network, and a new policy applies to it.
func TestKnown(t *testing.T) {
	x := newIndex(t)
	x.wheel(t, "one", "1.0", entry{name: "one.py"})
	x.wheel(t, "two", "1.0", entry{name: "two.py"})
	c := cleaned(t, x.config(t))
	now := time.Now()
	c.Now = func() time.Time { return now }
	p := packages.New(c)
	order := parse(t, sandboxmcp.Python, "one", "two>=1")
	if _, ok, err := p.Known(t.Context(), order); ok || err != nil {
		t.Fatalf("before: got %v, %v", ok, err)
	}
	g := opened(t, p, order)
	tree, err := g.Install(t.Context(), report(t, g, "one", "two"))
	if err != nil {
		t.Fatal(err)
	}
	again := opened(t, p, parse(t, sandboxmcp.Python, "two", "one"))
	if same, err := again.Install(t.Context(), report(t, again, "two", "one")); err != nil || same.Digest != tree.Digest {
		t.Errorf("the same packages again: got %s, %v, want %s", same.Digest, err, tree.Digest)
	}
	x.Close()
	known := func(want bool, o packages.Order) {
		t.Helper()
		if got, ok, err := packages.New(c).Known(t.Context(), o); err != nil || ok != want || ok && got.Digest != tree.Digest {
			t.Errorf("got %v, %v, want %v", ok, err, want)
		}
	}
	known(true, order)
	known(true, parse(t, sandboxmcp.Python, "two>=1", "one"))
	known(false, parse(t, sandboxmcp.Python, "one"))
	other := parse(t, sandboxmcp.Python, "one", "two>=1")
	other.Runtime = "cp312"
	known(false, other)
	now = now.Add(25 * time.Hour)
	known(false, order)
	// An order of exact versions stays right.
	exact := parse(t, sandboxmcp.Python, "one==1.0")
	g = opened(t, p, exact) // from the cache: the index is gone
	tree, err = g.Install(t.Context(), report(t, g, "one"))
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(1000 * time.Hour)
	known(true, exact)
	c.Policy.Deny = []string{"on*"}
	_, _, err = packages.New(c).Known(t.Context(), exact)
	wantCode(t, err, sandboxmcp.CodePackageRejected, "packages_deny")
}

// TestNodePackages: a lock becomes nested directories, without links and scripts.
func TestNodePackages(t *testing.T) {
	x := newIndex(t)
	x.npm(t, "a", "1.0.0", "", entry{name: "package/index.js", text: "a"}, entry{name: "package/node_modules/smuggled/index.js", text: "s"})
	x.npm(t, "b", "1.0.0", `,"scripts":{"postinstall":"touch /tmp/x"}`, entry{name: "package/index.js", text: "b1"})
	x.npm(t, "b", "2.0.0", "", entry{name: "b-dir/lib/index.js", text: "b2"})
	x.npm(t, "@s/c", "1.0.0", "", entry{name: "package/bin.js", text: "c", mode: 0o755}, entry{name: "package/node_modules/d/index.js", text: "d"})
	x.files["@s/c"][0].fields = map[string]any{"bundleDependencies": []string{"d"}}
	p := packages.New(cleaned(t, x.config(t)))
	g := opened(t, p, parse(t, sandboxmcp.Node, "a", "@s/c@^1"))
	w := asks(t, g, "/@s%2fc")
	if body := w.Body.String(); w.Code != http.StatusOK || strings.Contains(body, x.URL) || !strings.Contains(body, "http://127.0.0.1:312/@s/c/-/c-1.0.0.tgz") {
		t.Errorf("document: got %d %s", w.Code, body)
	}
	if w := asks(t, g, "/@s/c/-/c-1.0.0.tgz"); w.Code != http.StatusOK || w.Body.String() != string(x.files["@s/c"][0].data) {
		t.Errorf("tarball: got %d", w.Code)
	}
	tree, err := g.Install(t.Context(), lock(t,
		"node_modules/a", `{"version":"1.0.0","resolved":"http://evil.test/a.tgz"}`,
		"node_modules/b", `{"version":"1.0.0"}`,
		"node_modules/a/node_modules/b", `{"version":"2.0.0"}`,
		"node_modules/@s/c", `{"version":"1.0.0"}`,
		"node_modules/@s/c/node_modules/d", `{"version":"1.0.0","inBundle":true}`,
		"node_modules/mac", `{"version":"1.0.0","optional":true,"os":["darwin"]}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	files := listing(t, tree.Dir)
	for name, want := range map[string]string{"a/index.js": "a", "b/index.js": "b1", "a/node_modules/b/lib/index.js": "b2", "@s/c/bin.js": "c", "@s/c/node_modules/d/index.js": "d", "a/node_modules/smuggled/index.js": ""} {
		if got := files[filepath.Join("node_modules", filepath.FromSlash(name))]; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if len(tree.Installed) != 4 || tree.Installed[0].PURL != "pkg:npm/%40s/c@1.0.0" || tree.Installed[0].License != "MIT" {
		t.Errorf("got %+v", tree.Installed)
	}
	if len(tree.Warnings) != 1 || !strings.Contains(tree.Warnings[0], "b 1.0.0 has an install script") {
		t.Errorf("warnings: got %q", tree.Warnings)
	}
}

func TestPolicy(t *testing.T) {
	x := newIndex(t)
	x.wheel(t, "one", "1.0", entry{name: "one.py"})
	x.wheel(t, "two", "1.0", entry{name: "two.py"})
	base := cleaned(t, x.config(t))
	for name, c := range map[string]struct {
		policy packages.Policy
		spec   string
		part   string // empty: allowed
	}{
		"Default":  {packages.Policy{}, "one", ""},
		"Deny":     {packages.Policy{Default: packages.Deny}, "one", "PACKAGES"},
		"Listed":   {packages.Policy{Default: packages.Deny, Allow: []string{"one"}}, "one", ""},
		"Glob":     {packages.Policy{Default: packages.Deny, Allow: []string{"python:o*"}}, "one", ""},
		"Language": {packages.Policy{Default: packages.Deny, Allow: []string{"node:one"}}, "one", "deny"},
		"Both":     {packages.Policy{Allow: []string{"one"}, Deny: []string{"O_ne*", "ONE"}}, "one", "packages_deny"},
		"Brackets": {packages.Policy{Deny: []string{"[o]ne", "on?", `\one`}}, "one", ""},
		"NoAsk":    {packages.Policy{Default: packages.Ask}, "one", "ask"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base
			cfg.Policy = c.policy
			g, err := packages.New(cfg).Open(t.Context(), parse(t, sandboxmcp.Python, c.spec))
			if c.part != "" {
				wantCode(t, err, sandboxmcp.CodePackageRejected, c.part)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = g.Close()
		})
	}
	if n := x.requests("/"); n != 0 {
		t.Errorf("got %d requests before anything was resolved, want 0", n)
	}
	t.Run("Dependency", func(t *testing.T) {
		cfg := base
		cfg.Policy.Deny = []string{"two"}
		g := opened(t, packages.New(cfg), parse(t, sandboxmcp.Python, "one"))
		if w := asks(t, g, "/simple/two/"); w.Code != http.StatusForbidden {
			t.Errorf("got %d, want 403", w.Code)
		}
		wantCode(t, g.Failure(t.Context(), "ERROR: whatever"), sandboxmcp.CodePackageRejected, "two")
		g = opened(t, packages.New(cfg), parse(t, sandboxmcp.Python, "one"))
		_, err := g.Install(t.Context(), report(t, g, "one", "two"))
		wantCode(t, err, sandboxmcp.CodePackageRejected, "two")
		if x.requests("/simple/two/") != 0 {
			t.Error("the index was asked for a package that is denied")
		}
	})
}

// TestAskedOnce: a person is asked once for what was asked for, and once for everything that it
// needs. Nothing is fetched before the first answer, and nothing is installed before the second.
func TestAskedOnce(t *testing.T) {
	x := newIndex(t)
	x.wheel(t, "one", "1.0", entry{name: "one.py"})
	x.wheel(t, "two", "1.0", entry{name: "two.py"})
	x.wheel(t, "three", "1.0", entry{name: "three.py"})
	c := cleaned(t, x.config(t))
	c.Policy = packages.Policy{Default: packages.Ask}
	p := packages.New(c)
	var mu sync.Mutex
	asked := map[string]int{}
	pending := ""
	order := parse(t, sandboxmcp.Python, "one")
	order.Ask = func(_ context.Context, _ sandboxmcp.Language, names []string) error {
		mu.Lock()
		defer mu.Unlock()
		asked[strings.Join(names, " ")]++
		if slices.Contains(names, pending) {
			return sandboxmcp.Errorf(sandboxmcp.CodeApprovalPending, "%s has to be approved", pending).With("approval_id", "x")
		}
		return nil
	}
	g := opened(t, p, order)
	if _, err := g.Install(t.Context(), report(t, g, "one", "two", "one", "two")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInstallFailed {
		t.Errorf("one package twice: got %v", err)
	}
	if diff := cmp.Diff(map[string]int{"one": 1}, asked); diff != "" {
		t.Error(diff)
	}
	g = opened(t, p, order)
	pending = "two"
	clear(asked)
	chosen := report(t, g, "one", "two", "three")
	_, err := g.Install(t.Context(), chosen)
	wantCode(t, err, sandboxmcp.CodeApprovalPending, "two")
	if diff := cmp.Diff(map[string]int{"three two": 1}, asked); diff != "" {
		t.Error(diff)
	}
	pending = ""
	g = opened(t, p, order)
	if _, err := g.Install(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	pending = "two"
	clear(asked)
	_, _, err = p.Known(t.Context(), order)
	wantCode(t, err, sandboxmcp.CodeApprovalPending, "two")
	if diff := cmp.Diff(map[string]int{"one three two": 1}, asked); diff != "" {
		t.Error(diff)
	}
	g = opened(t, p, order)
	_, err = g.Install(t.Context(), chosen)
	wantCode(t, err, sandboxmcp.CodeApprovalPending, "two")
	if sandboxmcp.AsError(err).Fields["approval_id"] != "x" {
		t.Error("the failure has not the fields of the question")
	}
	pending = "one"
	_, err = p.Open(t.Context(), order)
	wantCode(t, err, sandboxmcp.CodeApprovalPending, "one")
}

func TestMinimumAge(t *testing.T) {
	x := newIndex(t)
	now := time.Now()
	for v, age := range map[string]time.Duration{"1.0.0": 30, "2.0.0": 2} {
		at := now.Add(-age * 24 * time.Hour)
		x.add("one", published{file: "one-" + v + "-py3-none-any.whl", version: v, data: wheelOf(t, "one", v), uploaded: at})
		x.add("js", published{version: v, data: npmOf(t, "js", v, ""), uploaded: at})
		x.add("new", published{file: "new-" + v + "-py3-none-any.whl", version: v, data: wheelOf(t, "new", v)})
	}
	c := cleaned(t, x.config(t))
	c.Policy.MinAge = 14 * 24 * time.Hour
	p := packages.New(c)
	g := opened(t, p, parse(t, sandboxmcp.Python, "one"))
	if body := asks(t, g, "/simple/one/").Body.String(); !strings.Contains(body, "one-1.0.0") || strings.Contains(body, "one-2.0.0") {
		t.Errorf("got %s", body)
	}
	if diff := cmp.Diff([]packages.Rejected{{Name: "one", Reason: "2.0.0: uploaded less than 14 days ago (packages_min_age_days)"}}, g.Rejected()); diff != "" {
		t.Error(diff)
	}
	asks(t, g, "/simple/new/")
	wantCode(t, g.Failure(t.Context(), "ERROR: No matching distribution found for new>=1\n"), sandboxmcp.CodePackageRejected, "does not say when")
	n := opened(t, p, parse(t, sandboxmcp.Node, "js"))
	if body := asks(t, n, "/js").Body.String(); !strings.Contains(body, `"latest":"1.0.0"`) || strings.Contains(body, "2.0.0") {
		t.Errorf("got %s", body)
	}
}

// TestSourceOnly: a package without a wheel is told with its reason, and no source is fetched.
func TestSourceOnly(t *testing.T) {
	x := newIndex(t)
	x.add("docopt", published{file: "docopt-0.6.2.tar.gz", version: "0.6.2", data: []byte("source")})
	x.add("both", published{file: "both-1.0.tar.gz", version: "1.0", data: []byte("source")})
	x.wheel(t, "both", "2.0")
	g := opened(t, packages.New(cleaned(t, x.config(t))), parse(t, sandboxmcp.Python, "docopt==0.6.2", "both"))
	asks(t, g, "/simple/both/")
	if body := asks(t, g, "/simple/docopt/").Body.String(); strings.Contains(body, "tar.gz") {
		t.Errorf("got %s", body)
	}
	wantCode(t, g.Failure(t.Context(), "ERROR: No matching distribution found for docopt==0.6.2"), sandboxmcp.CodePackageRejected, "only source")
	if diff := cmp.Diff([]packages.Rejected{{Name: "docopt", Reason: "0.6.2: only source: its build would run code of the package"}}, g.Rejected()); diff != "" {
		t.Error(diff)
	}
	if x.requests("/blob/") != 0 {
		t.Error("a source archive was fetched")
	}
	asks(t, g, "/simple/nothing/")
	wantCode(t, g.Failure(t.Context(), "ERROR: No matching distribution found for nothing"), sandboxmcp.CodeInstallFailed, "no nothing")
	wantCode(t, g.Failure(t.Context(), "ERROR: Could not find a version that satisfies the requirement both==9 (from versions: 1.5, 2.0)"), sandboxmcp.CodeInstallFailed, "newest version is 2.0")
	wantCode(t, g.Failure(t.Context(), "noise\nERROR: ResolutionImpossible\x1b[0m\n"), sandboxmcp.CodeInstallFailed, "ResolutionImpossible")
	wantCode(t, g.Failure(t.Context(), "ERROR: Could not find a version that satisfies the requirement both (from versions: none)"), sandboxmcp.CodePackageRejected, "no wheel for this Python")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, g.Failure(ctx, ""), sandboxmcp.CodeCancelled, "")
}

func TestNamesThatResemble(t *testing.T) {
	for name, want := range map[string]string{"reqeusts": "requests", "request": "requests", "requests": "", "numpyy": "numpy", "pandsa": "pandas", "unlike": "", "flas": "", "djang0": "django"} {
		got := parse(t, sandboxmcp.Python, name).Warnings()
		if want == "" && name != "flas" && len(got) != 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], " "+want+";")) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := parse(t, sandboxmcp.Node, "expres").Warnings(); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

// TestDirect: a package without dependencies needs no resolver, and anything that is not plain
// is left to one.
func TestDirect(t *testing.T) {
	x := newIndex(t)
	add := func(name, version, tags string, fields map[string]any, requires ...string) {
		info := name + "-" + version + ".dist-info"
		meta := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
		for _, r := range requires {
			meta += "Requires-Dist: " + r + "\n"
		}
		about, module := entry{name: info + "/METADATA", text: meta + "\nText\n"}, entry{name: name + ".py", text: version}
		x.add(name, published{file: name + "-" + version + "-" + tags + ".whl", version: version, data: zipOf(t, about, module, recordOf(info, about, module)), fields: fields})
	}
	const pure = "py2.py3-none-any"
	for _, v := range []string{"1.9", "1.10", "1.11rc1", "1.2"} {
		add("plain", v, pure, nil)
	}
	add("plain", "2.0", pure, map[string]any{"requires-python": ">=3.12"})
	add("extra", "1.0", pure, nil, `a; extra == "x"`)
	add("needs", "1.0", pure, nil, "plain>=1")
	add("marker", "1.0", pure, nil, `a; python_version < "3"`)
	add("binary", "1.0", "cp311-cp311-linux_x86_64", nil)
	add("both", "1.0", pure, nil)
	add("both", "1.0", "cp311-cp311-linux_x86_64", nil)
	add("yanked", "1.0", pure, map[string]any{"yanked": true})
	add("plain", "1.12", pure, map[string]any{"yanked": "broken"})
	add("odd", "1!1.0", pure, nil)
	add("early", "1.0rc1", pure, nil)
	x.npm(t, "js", "1.0.0", "", entry{name: "package/i.js"})
	x.npm(t, "dep", "1.0.0", "", entry{name: "package/i.js"})
	x.files["dep"][0].fields = map[string]any{"dependencies": map[string]string{"js": "*"}}
	p := packages.New(cleaned(t, x.config(t)))
	for _, c := range []struct {
		lang  sandboxmcp.Language
		specs string
		want  string // empty: not direct
	}{
		{sandboxmcp.Python, "plain", "plain 1.10"},
		{sandboxmcp.Python, "plain<1.10", "plain 1.9"},
		{sandboxmcp.Python, "plain==1.2 extra", "extra 1.0, plain 1.2"},
		{sandboxmcp.Python, "plain==2.0", ""},
		{sandboxmcp.Python, "plain==1.12", ""},
		{sandboxmcp.Python, "plain==1.11rc1", ""},
		{sandboxmcp.Python, "plain~=1.0", ""},
		{sandboxmcp.Python, "plain plain", ""},
		{sandboxmcp.Python, "extra[x]", ""},
		{sandboxmcp.Python, "needs", ""},
		{sandboxmcp.Python, "plain needs", ""},
		{sandboxmcp.Python, "marker", ""},
		{sandboxmcp.Python, "binary", ""},
		{sandboxmcp.Python, "both", ""},
		{sandboxmcp.Python, "yanked", ""},
		{sandboxmcp.Python, "early", ""},
		{sandboxmcp.Python, "none", ""},
		{sandboxmcp.Node, "js", "js 1.0.0"},
		{sandboxmcp.Node, "js@1.0.0", "js 1.0.0"},
		{sandboxmcp.Node, "js@^1", ""},
		{sandboxmcp.Node, "js@2.0.0", ""},
		{sandboxmcp.Node, "dep", ""},
	} {
		g := opened(t, p, parse(t, c.lang, strings.Fields(c.specs)...))
		tree, ok, err := g.Direct(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.specs, err)
		}
		var got []string
		for _, i := range tree.Installed {
			got = append(got, i.Name+" "+i.Version)
		}
		if strings.Join(got, ", ") != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %v, %v, want %q", c.specs, got, ok, c.want)
		}
	}
}

// TestModulesThatAreNoPackages: the name of a module is answered with its package.
func TestModulesThatAreNoPackages(t *testing.T) {
	x := newIndex(t)
	x.add("sklearn", published{file: "sklearn-0.0.tar.gz", version: "0.0", data: []byte("source")})
	o := parse(t, sandboxmcp.Python, "sklearn", "yaml")
	g := opened(t, packages.New(cleaned(t, x.config(t))), o)
	asks(t, g, "/simple/sklearn/")
	asks(t, g, "/simple/yaml/")
	for name, want := range map[string]string{"sklearn": "the module sklearn comes with scikit-learn: pass that", "yaml": "the module yaml comes with PyYAML: pass that"} {
		err := g.Failure(t.Context(), "ERROR: No matching distribution found for "+name)
		if e := sandboxmcp.AsError(err); e.Hint != want {
			t.Errorf("%s: got the hint %q of %q, want %q", name, e.Hint, e.Message, want)
		}
	}
	want := []string{"the module sklearn comes with the package scikit-learn", "the module yaml comes with the package PyYAML"}
	if d := cmp.Diff(want, o.Warnings()); d != "" {
		t.Errorf("warnings of names that an index may have (-want +got):\n%s", d)
	}
	for _, plain := range []packages.Order{parse(t, sandboxmcp.Python, "pyyaml", "discord.py"), parse(t, sandboxmcp.Node, "yaml")} {
		if got := plain.Warnings(); len(got) != 0 {
			t.Errorf("got the warnings %q, want none", got)
		}
	}
}

// TestIndexHosts: what pip and npm ask, with the configuration of this machine and without it.
func TestIndexHosts(t *testing.T) {
	got := packages.New(packages.Config{Env: []string{"PIP_INDEX_URL=https://user:pw@Py.site.test/simple", "npm_config_registry=https://js.site.test:8443/"}}).IndexHosts()
	for _, want := range []string{"py.site.test", "js.site.test"} {
		if !slices.Contains(got, want) {
			t.Errorf("got %q, want %s in it", got, want)
		}
	}
	if len(got) != 5 {
		t.Errorf("got %q, want the two of the configuration and three that pip and npm use without one", got)
	}
}
