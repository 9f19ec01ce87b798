package packages_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// TestIndexesAreNotMixed: a name of the operator's own index is not taken over by a newer
// version in the public one.
func TestIndexesAreNotMixed(t *testing.T) {
	public, own := newIndex(t), newIndex(t)
	public.wheel(t, "secret", "99.0", entry{name: "secret.py", text: "public"})
	public.wheel(t, "six", "1.0", entry{name: "six.py"})
	own.wheel(t, "secret", "1.0", entry{name: "secret.py", text: "own"})
	c := cleaned(t, public.config(t))
	c.Env = append(c.Env, "PIP_EXTRA_INDEX_URL="+own.URL+"/simple/")
	g := opened(t, packages.New(c), parse(t, sandboxmcp.Python, "secret", "six"))
	tree, ok, err := g.Direct(t.Context())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := listing(t, tree.Path)["secret.py"]; got != "own" || len(tree.Installed) != 2 {
		t.Errorf("got %q, %+v", got, tree.Installed)
	}
	if public.requests("/simple/secret/") != 0 {
		t.Error("the public index was asked for the name of a private package")
	}
}

// TestDirectoriesOfWheels: find-links names wheels that need no index.
func TestDirectoriesOfWheels(t *testing.T) {
	x := newIndex(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "local-1.0-py3-none-any.whl"), wheelOf(t, "local", "1.0", entry{name: "local.py", text: "here"}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "local-2.0-py3-none-any.whl")); err != nil {
		t.Fatal(err)
	}
	c := cleaned(t, x.config(t))
	c.Env = append(c.Env, "PIP_FIND_LINKS="+dir, "PIP_NO_INDEX=1")
	g := opened(t, packages.New(c), parse(t, sandboxmcp.Python, "local"))
	tree, err := g.Install(t.Context(), report(t, g, "local"))
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(t, tree.Path)["local.py"]; got != "here" || tree.Installed[0].Index != "find-links" {
		t.Errorf("got %q, %+v", got, tree.Installed)
	}
	if n := x.requests("/"); n != 0 {
		t.Errorf("the index got %d requests in spite of no-index", n)
	}
}

// TestMetadataOfAnIndex: the metadata that the resolver sees is that of the wheel, or the wheel
// is refused.
func TestMetadataOfAnIndex(t *testing.T) {
	for _, lie := range []bool{false, true} {
		x := newIndex(t)
		data := wheelOf(t, "one", "1.0", entry{name: "one.py"})
		meta := "Metadata-Version: 2.1\nName: one\nVersion: 1.0\nLicense: MIT\n\nText\n"
		if lie {
			meta = "Metadata-Version: 2.1\nName: one\nVersion: 1.0\nRequires-Dist: other\n"
		}
		x.add("one", published{file: "one-1.0-py3-none-any.whl", version: "1.0", data: data, fields: map[string]any{"core-metadata": map[string]string{"sha256": hash256([]byte(meta))}}})
		path := "/blob/" + hash256(data) + "/one-1.0-py3-none-any.whl"
		x.pages[path+".metadata"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(meta)) }
		g := opened(t, packages.New(cleaned(t, x.config(t))), parse(t, sandboxmcp.Python, "one"))
		if got := asks(t, g, "/files/"+hash256(data)+"/one-1.0-py3-none-any.whl.metadata").Body.String(); got != meta {
			t.Errorf("got %q, want %q", got, meta)
		}
		if n := x.requests(path); n != 1 {
			t.Errorf("got %d requests, want 1: the metadata alone", n)
		}
		_, err := g.Install(t.Context(), report(t, g, "one"))
		if lie {
			wantCode(t, err, sandboxmcp.CodePackageRejected, "not what the index says")
		} else if err != nil {
			t.Error(err)
		}
	}
}

// FuzzSpecs: what is parsed is safe as an argument of a resolver.
func FuzzSpecs(f *testing.F) {
	for _, s := range []string{"six==1.0", "a[b]>=1,<2", "@types/node@^20", "--x", "a@file:b", "a b", "x\ny", "../x", "six @ http://x"} {
		f.Add(s)
	}
	plain := regexp.MustCompile(`^[A-Za-z0-9_@][A-Za-z0-9._~@/^=<>!+*,\[\]-]*$`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, lang := range []sandboxmcp.Language{sandboxmcp.Python, sandboxmcp.Node} {
			specs, err := packages.Parse(lang, []string{text})
			if err != nil {
				continue
			}
			s := specs[0]
			all := s.Name + strings.Join(s.Extras, "") + s.Versions
			if !plain.MatchString(all) || strings.Contains(all, "..") && strings.Contains(all, "/") || strings.Count(s.Name, "/") > 1 || lang == sandboxmcp.Python && strings.Contains(all, "/") {
				t.Errorf("%q is parsed as %+v", text, s)
			}
		}
	})
}
