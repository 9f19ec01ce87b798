package packages_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// TestWheelsWithMetadataOfOthers: Python's importlib.metadata takes a package's name from the
// name of the directory of metadata, in any case. A wheel must not bring metadata of another.
func TestWheelsWithMetadataOfOthers(t *testing.T) {
	info := "one-1.0.dist-info"
	named := func(info string) []byte {
		meta := entry{name: info + "/METADATA", text: "Name: one\nVersion: 1.0\n"}
		return zipOf(t, meta, recordOf(info, meta))
	}
	for name, c := range map[string]struct {
		data []byte
		part string
	}{
		"OtherName":   {named("two-1.0.dist-info"), "not that of one"},
		"ShorterName": {named("on-1.0.dist-info"), "not that of one"},
		"NoName":      {named(".dist-info"), "not that of one"},
		"Case":        {wheelOf(t, "one", "1.0", entry{name: "two-1.0.DIST-INFO/METADATA"}), "two .dist-info"},
		"OwnCase":     {wheelOf(t, "one", "1.0", entry{name: "One-1.0.dist-info/entry_points.txt"}), "two .dist-info"},
		"File":        {wheelOf(t, "one", "1.0", entry{name: "two-1.0.dist-info"}), "two .dist-info"},
		"Data":        {wheelOf(t, "one", "1.0", entry{name: "one-1.0.data/purelib/two-1.0.dist-info/METADATA"}), "two .dist-info"},
		"DataCase":    {wheelOf(t, "one", "1.0", entry{name: "one-1.0.data/platlib/two-1.0.Dist-Info/METADATA"}), "two .dist-info"},
		"DirMode":     {wheelOf(t, "one", "1.0", entry{name: "two-1.0.dist-info/METADATA", mode: fs.ModeDir}), "no regular file"},
		"DirTwice":    {wheelOf(t, "one", "1.0", entry{name: "a.py", text: "1"}, entry{name: "A.py", text: "2", mode: fs.ModeDir}), "no regular file"},
		"DirInfo": {wheelOf(t, "one", "1.0", entry{name: info + "/entry_points.txt", text: "1"},
			entry{name: info + "/Entry_points.txt", text: "2", mode: fs.ModeDir}), "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.add("one", published{file: "one-1.0-py3-none-any.whl", version: "1.0", data: c.data})
			cfg := cleaned(t, x.config(t))
			g := opened(t, packages.New(cfg), parse(t, sandboxmcp.Python, "one"))
			_, err := g.Install(t.Context(), report(t, g, "one"))
			wantCode(t, err, sandboxmcp.CodePackageRejected, c.part)
			nothingMade(t, cfg.Dir)
		})
	}
}

// TestEggInfoIsLeftOut: importlib.metadata reads it, too, as metadata of a package of its name.
func TestEggInfoIsLeftOut(t *testing.T) {
	x := newIndex(t)
	x.wheel(t, "one", "1.0", entry{name: "one.py"}, entry{name: "two.egg-info/PKG-INFO", text: "Name: two\n"},
		entry{name: "three.EGG-INFO", text: "Name: three\n"}, entry{name: "one-1.0.data/purelib/four.egg-info/PKG-INFO"},
		entry{name: "one/tests/five.egg-info/PKG-INFO"})
	cfg := cleaned(t, x.config(t))
	g := opened(t, packages.New(cfg), parse(t, sandboxmcp.Python, "one"))
	tree, err := g.Install(t.Context(), report(t, g, "one"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range listing(t, tree.Path) {
		if first, _, _ := strings.Cut(filepath.ToSlash(name), "/"); strings.HasSuffix(strings.ToLower(first), ".egg-info") {
			t.Errorf("%s is in the tree", name)
		}
	}
	if all := strings.Join(tree.Warnings, "\n"); !strings.Contains(all, "two.egg-info") {
		t.Errorf("got the warnings %q, want one about two.egg-info", all)
	}
}
