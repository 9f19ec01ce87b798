package plainfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// TestLeadsInto: a link anywhere on the way counts, also one that leads out again.
func TestLeadsInto(t *testing.T) {
	top := plainfile.Unlinked(t.TempDir())
	in := top + "/in"
	for _, dir := range []string{in + "/deep", top + "/out", top + "/inner"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"/out/file": "../in/file", "/out/dir": in + "/deep", "/in/back": top + "/out", "/out/through": in + "/back/x", "/out/other": "../inner/x", "/out/loop": "loop",
	} {
		if err := os.Symlink(target, top+link); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		in: true, in + "/deep/missing": true, top + "/out/../in/x": true, top + "/out/file": true, top + "/out/dir/x": true, top + "/out/through": true, top + "/out/loop": true, top + "/out/dir/../x": true, top + "/out/./dir//../../inner": true,
		top: false, top + "/inner/x": false, top + "/out/other": false, top + "/out/missing": false, "/": false,
	} {
		if got := plainfile.LeadsInto(in, path); got != want {
			t.Errorf("%s: got %t, want %t", path, got, want)
		}
		if plainfile.LeadsInto("", path) {
			t.Errorf("%s leads into no directory: got true, want false", path)
		}
	}
	for i, next := range []string{"long1", "long2", "long3", "../inner/x"} { // more names than are followed
		if err := os.Symlink(strings.Repeat("../out/", 550)+strings.Repeat("./", 100)+next, top+"/out/long"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if !plainfile.LeadsInto(in, top+"/out/long0") || plainfile.LeadsInto(in, top+"/out/long1") {
		t.Error("links through many directories: got that they are followed for ever, or not at all, want the longer one to count")
	}
	if got := plainfile.Links(top + "/out/through/x"); !slices.Equal(got, []string{top + "/out/through", top + "/in/back"}) {
		t.Errorf("got the links %q, want both", got)
	}
	t.Chdir(in)
	if !plainfile.LeadsInto(in, filepath.Join("deep", "x")) {
		t.Error("a relative path: got false, want true")
	}
	if got := plainfile.Unlinked(top + "/out/dir"); got != in+"/deep" {
		t.Errorf("got %s, want it without links", got)
	}
}

// TestVisitEndsAPath: links of one user lead through thousands of directories each, and there are hundreds of them.
func TestVisitEndsAPath(t *testing.T) {
	dir := plainfile.Unlinked(t.TempDir())
	if err := os.Symlink(strings.Repeat("../"+filepath.Base(dir)+"/", 100), dir+"/link"); err != nil {
		t.Skipf("this system makes no links: %v", err)
	}
	enough := errors.New("enough")
	left, paths := 1000, 0
	visit := func(string) error {
		if left--; left < 0 {
			return enough
		}
		return nil
	}
	for ; paths < 100; paths++ {
		real, err := plainfile.Real(dir+"/link", visit)
		if errors.Is(err, enough) {
			break
		} else if err != nil || real != dir {
			t.Fatalf("got %s, %v, want %s", real, err, dir)
		}
	}
	if paths < 1 || paths > 5 {
		t.Errorf("got %d paths, want less than six of 200 names", paths)
	}
}

// TestSlashesAreNotKept: a link may have thousands of slashes, and there are forty links on a path. What they name is visited once, and the slashes not at all.
func TestSlashesAreNotKept(t *testing.T) {
	dir := plainfile.Unlinked(t.TempDir())
	if err := os.Mkdir(dir+"/40", 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := os.Symlink(strconv.Itoa(i+1)+strings.Repeat("/", 3000)+strings.Repeat("./", 500), dir+"/"+strconv.Itoa(i)); err != nil {
			t.Skipf("this system makes no links: %v", err)
		}
	}
	visited, bytes := 0, 0
	real, err := plainfile.Real(dir+"/0", func(next string) error {
		visited, bytes = visited+1, bytes+len(next)
		return nil
	})
	if err != nil || real != dir+"/40" {
		t.Errorf("got %s, %v, want the directory", real, err)
	}
	if bytes < 40*4000 {
		t.Errorf("got visits of %d bytes, want the target of each link among them", bytes)
	}
	walked := 0
	if whole := plainfile.Walk(dir+"/0", func(string, bool) bool { walked++; return true }); !whole || walked > visited {
		t.Errorf("got %d names, %t, want at most the %d that Real visits", walked, whole, visited)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/file": true, "/file/": false, "/file/.": false, "/40/": true, "/40/./": true, "/./40": true} {
		if _, err := plainfile.Real(dir+path, func(string) error { return nil }); (err == nil) != want {
			t.Errorf("%s: got %v, want that it is followed: %t", path, err, want)
		}
	}
}
