package process

import (
	"slices"
	"testing"
)

// TestSumsOfTexts: the hash of a text is that of its bytes, wherever they are and whichever text was hashed before.
func TestSumsOfTexts(t *testing.T) {
	a, b := []byte("print(1)"), []byte("print(2)")
	first, other := sumOf(a), sumOf(b)
	if first == other {
		t.Error("two texts have the same hash")
	}
	for name, text := range map[string][]byte{"the same": a, "a copy": slices.Clone(a), "the same again": a} {
		if got := sumOf(text); got != first {
			t.Errorf("%s: got %s, want %s", name, got, first)
		}
	}
	if got := sumOf(a[:7]); got == first {
		t.Error("a part of a text has the hash of the whole")
	}
	if got, want := sumOf(nil), sumOf([]byte{}); got != want {
		t.Errorf("no text: got %s and %s", got, want)
	}
}
