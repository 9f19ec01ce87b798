package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAProgramThatIsRewrittenIsNotExecuted: a file can be rewritten in place after its check, which a descriptor of it does not prevent.
func TestAProgramThatIsRewrittenIsNotExecuted(t *testing.T) {
	code, err := os.ReadFile("/bin/echo")
	if err != nil {
		t.Skipf("there is no echo: %v", err)
	}
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, code, 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProgram(path)
	f, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	j := job{file: f, pinned: p.pinned, path: path, words: []string{"tool", "RAN"}, dir: "/", execs: p.execs, last: true, timeout: time.Minute}
	e, err := execute(t.Context(), j)
	if err != nil || string(e.stdout) != "RAN\n" {
		t.Fatalf("got %q, %v, want that it is executed", e.stdout, err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil { // a write could fall into the same step of the clock
		t.Fatal(err)
	}
	if e, err = execute(t.Context(), j); !errors.Is(err, errReplaced) || len(e.stdout) > 0 {
		t.Errorf("got %q, %v, want that it is not executed", e.stdout, err)
	}
}
