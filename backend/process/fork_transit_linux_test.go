package process_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestForkWhileDescriptorsAreInTransit: a program that has as many descriptors on
// their way through sockets as the kernel grants its user keeps no other program
// from being forked.
func TestForkWhileDescriptorsAreInTransit(t *testing.T) {
	testkit.User(t) // root gives every sandbox a user of its own
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	greed, err := os.ReadFile("../backendtest/testdata/attack/b09-in-flight.py")
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	hatched(t, b, spec("warm"))
	sb, err := b.Open(t.Context(), spec("greedy"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	r := started(t, sb, string(greed))
	var sent int
	if _, err := fmt.Fscanf(r, "up %d\n", &sent); err != nil || sent < 500 {
		t.Fatalf("descriptors in transit: got %d, want at least 500, or the test shows nothing: %v", sent, err)
	}
	before := b.(*process.Backend).Forks()
	for range 3 {
		ran(t, b, spec("modest"), "pass")
	}
	made := 0
	for end := time.Now().Add(time.Minute); made < 3 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // one may have waited before
		made = b.(*process.Backend).Forks() - before
	}
	if made < 3 {
		t.Errorf("got %d forks with %d descriptors in transit, want one for each of 3 programs", made, sent)
	}
}

// started starts a Python program that can be forked, and returns its output.
func started(t *testing.T, sb backend.Sandbox, source string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	p, _ := forkable(source)
	p.Stdout = w
	if _, err := sb.Start(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return r
}
