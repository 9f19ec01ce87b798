package backendtest

import (
	"context"
	"errors"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// interpretersRunThere: the reported interpreters run code in sandboxes, and missing ones are
// reported as missing.
func interpretersRunThere(t *testing.T, s *suite) {
	list, err := s.b.Interpreters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(sandboxmcp.Languages()) {
		t.Fatalf("got %d rows, want one for each of %v", len(list), sandboxmcp.Languages())
	}
	argv := map[sandboxmcp.Language][]string{sandboxmcp.Python: {"-c", "print(6 * 7)"}, sandboxmcp.Node: {"-e", "console.log(6 * 7)"}, sandboxmcp.Shell: {"-c", "echo $((6 * 7))"}}
	for i, l := range sandboxmcp.Languages() {
		row := list[i]
		in, err := s.b.Interpreter(t.Context(), l)
		if row.Language != l || row.Available != (err == nil) || row.Available && row.Version == "" || !row.Available && row.Hint == "" {
			t.Errorf("%s: got %+v, and %v for one", l, row, err)
		}
		if err != nil {
			if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeRuntimeUnavailable || e.Hint == "" {
				t.Errorf("%s: got %v, want %s and a hint", l, err, sandboxmcp.CodeRuntimeUnavailable)
			}
			continue
		}
		x := s.open(t, func(p *backend.Spec) { p.Trees, p.MemoryBytes = in.Trees, 512*mib })
		if e := x.run(t, backend.Process{Argv: append([]string{in.Path}, argv[l]...)}); e.Out != "42\n" {
			t.Errorf("%s at %s: got %q and %q, exit %+v, want 42", l, in.Path, e.Out, e.Err, e.Exit)
		}
	}
	if _, err := s.b.Interpreter(t.Context(), "cobol"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeUnsupportedLanguage {
		t.Errorf("cobol: got %v, want %s", err, sandboxmcp.CodeUnsupportedLanguage)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.b.Interpreters(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: got %v, want %v", err, context.Canceled)
	}
}
