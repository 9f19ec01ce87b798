package gate_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// TestPackagesOfOneQuestion: a question names all packages of an installation. Its grant opens each of
// them and no other.
func TestPackagesOfOneQuestion(t *testing.T) {
	set, err := gate.ParsePackage("python:Requests,idna,charset_normalizer,idna")
	if err != nil || set.String() != "python:charset-normalizer,idna,requests" {
		t.Fatalf("got %q, %v, want the names sorted, once each", set, err)
	}
	for text, want := range map[string]bool{"python:idna": true, "python:IDNA,requests": true, "python:idn": false, "python:idna,six": false, "node:idna": false} {
		p, err := gate.ParsePackage(text)
		if err != nil || set.Covers(p) != want {
			t.Errorf("%s: got %v, %v, want %v", text, set.Covers(p), err, want)
		}
	}
	for _, text := range []string{"python:", "python:a,", "python:a,,b", "python:a b", "python:a,-r", "shell:a", "python:a,node:b", "python:" + strings.Repeat("a,", gate.MaxPackages) + "a"} {
		if p, err := gate.ParsePackage(text); err == nil {
			t.Errorf("%.20s: got %q, want an error", text, p)
		}
	}
}
