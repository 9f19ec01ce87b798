package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlacesAreKnownByWhatTheyAre: a file system that ignores case shows a place at other paths. Here a link stands for one.
func TestPlacesAreKnownByWhatTheyAre(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place, other, beside := filepath.Join(root, "place"), filepath.Join(root, "PLACE"), filepath.Join(root, "beside")
	for _, dir := range []string{place, beside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(place, other); err != nil {
		t.Skipf("this system makes no links: %v", err)
	}
	closed := []string{place, filepath.Join(root, "missing")}
	for path, want := range map[string]bool{
		place: true, filepath.Join(place, "new"): true, other: true, filepath.Join(other, "new", "deeper"): true, root: false, filepath.Join(beside, "new"): false,
	} {
		if got := newPlaces(closed).hold(path); got != want {
			t.Errorf("%s is held: got %v, want %v", path, got, want)
		}
		if _, err := locate(path, []tree{newTree(root)}, closed); (err != nil) != want {
			t.Errorf("use %s: got %v, want an error: %v", path, err, want)
		}
		trees := newTree(root)
		trees.started = closed
		p, err := locate(path, []tree{trees}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.writable(path, nil); (err != nil) != want {
			t.Errorf("write %s: got %v, want an error: %v", path, err, want)
		}
	}
}
