package redact

import (
	"slices"
	"strings"
	"testing"
)

// A program that has a secret can print it forwards and backwards in turn, with a soft line break
// behind each byte. Each form of the secret then continues across every break. The list of breaks
// does not grow, and the whole text is masked.
func TestBreaksInAnEndlessFormAreForgotten(t *testing.T) {
	const value = "Ab12cd34Ef"
	back := []byte(value)
	slices.Reverse(back)
	round := strings.Join(strings.Split(value[1:]+string(back[1:]), ""), "=\n") + "=\n"
	m := New([]Secret{{"KEY", value}}, false)
	s := m.Stream()
	out := s.Write(nil, []byte(value[:1]+"=\n"))
	for range 2000 {
		out = s.Write(out, []byte(round))
	}
	if n := cap(s.secrets.joined.skips); n > 4*headBytes {
		t.Errorf("breaks that are kept: got %d, want at most %d", n, 4*headBytes)
	}
	if out = s.Close(out); !strings.HasPrefix(string(out), Mask) || len(out) > len(Mask)+2 {
		t.Errorf("the output: got %.60q of %d bytes, want one mask", out, len(out))
	}
}
