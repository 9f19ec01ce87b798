package testkit

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Hostile returns testdata/hostile/NAME of the package under test: a program that attacks
// its sandbox or the server. Its first lines are comments, in this order: "tries:", what it
// tries; "wall:", which wall or limit stops it; "expect:", what the test expects. Hostile
// fails the test if one of them is missing.
func Hostile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "hostile", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	if !hostileHead.Match(b) {
		t.Fatalf("testdata/hostile/%s begins with %.60q, want comments with tries:, wall: and expect:", name, b)
	}
	return string(b)
}

var hostileHead = regexp.MustCompile(`^(#|//) tries: .+\n(#|//) wall: .+\n(#|//) expect: .+\n`)
