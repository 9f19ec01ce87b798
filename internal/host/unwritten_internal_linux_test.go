package host

import (
	"slices"
	"testing"
)

// TestACommandDoesNotWriteTheSystem: a command that names a directory above those of the system does not write these.
func TestACommandDoesNotWriteTheSystem(t *testing.T) {
	h := &Host{}
	h.set.Store(&ruleSet{})
	f := &Files{host: h}
	f.SetRoots([]string{"/"})
	for word, want := range map[string]string{"/": "/etc", "/var": "/var/lib"} {
		writes, unwritten := f.namedIn(t.Context(), []string{word})
		if !slices.Equal(writes, []string{word}) || !slices.Contains(unwritten, want) {
			t.Errorf("%s: got %q without %q, want it without %s", word, writes, unwritten, want)
		}
	}
}
