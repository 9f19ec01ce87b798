package probe

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTheHomeDirectoryIsListed: a program without walls lists it, unless it is empty.
func TestTheHomeDirectoryIsListed(t *testing.T) {
	full := t.TempDir()
	if err := os.Mkdir(filepath.Join(full, "letters"), 0o700); err != nil {
		t.Fatal(err)
	}
	for home, held := range map[string]bool{full: false, t.TempDir(): true} {
		s, err := NewSite(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.home = home
		for _, p := range Programs() {
			if p.Name != "walls" {
				continue
			}
			for _, f := range p.Judge(s, bare(t.Context(), t, p.Request(s))) {
				if f.Name == "home" && f.Held != held {
					t.Errorf("%s: got %+v, want held %v", home, f, held)
				}
			}
		}
	}
}
