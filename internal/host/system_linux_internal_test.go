package host

import (
	"os"
	"testing"
)

// TestFilesBelowRootsAreNotOfTheSystem: the file tools of a server that root has started write files of root, also below a root
// such as /usr/src/app. A link has a mode that says nothing.
func TestFilesBelowRootsAreNotOfTheSystem(t *testing.T) {
	const path = "/usr/bin/env"
	if !onlyRoot(path) {
		t.Skip("others than root can change " + path)
	}
	h := &Host{}
	h.Files = &Files{host: h}
	for root, want := range map[string]bool{"/usr/bin": false, "/usr": false, "/usr/src": true, "/": true} {
		h.Files.SetRoots([]string{root})
		if got := h.system(path); got != want {
			t.Errorf("with the root %s: got %t, want %t", root, got, want)
		}
	}
	h.Files.SetRoots(nil)
	for _, link := range []string{"/bin", "/usr/bin/awk"} {
		if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink != 0 && !h.system(link) {
			t.Errorf("the link %s: got false, want true", link)
		}
	}
	workspace := newTree("/usr/bin")
	h.Files.workspace = &workspace
	if h.system(path) {
		t.Error("in the workspace: got true, want false")
	}
}
