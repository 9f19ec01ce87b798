package sandboxmcp_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// fortyTwo is the example of the README, word for word.
//
//nolint:contextcheck // Close has no context: it always ends what it began
func fortyTwo(ctx context.Context, w io.Writer) error {
	e, err := engine.Default(ctx)
	if err != nil {
		return err
	}
	defer e.Close()

	res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{
		Code:   "print(6*7)",
		Limits: sandboxmcp.Limits{TimeoutSeconds: 5, MaxRAMMB: 128},
	})
	if err != nil {
		return err // an *Error with a code, a message and a hint
	}
	fmt.Fprint(w, res.Status, res.Stdout, res.Isolation.Walls)
	return nil
}

// TestReadmeExample: what the README shows of the library is what compiles here,
// and it does what it says where a sandbox can be had.
func TestReadmeExample(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "README.md"), "\n## As a library\n")
	_, text, _ = strings.Cut(text, "\n```go\n")
	shown, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("the README shows no example of the library")
	}
	_, text, _ = strings.Cut(read(t, "example_test.go"), "\nfunc fortyTwo(ctx context.Context, w io.Writer) error {\n")
	body, _, _ := strings.Cut(text, "\n\treturn nil\n}\n")
	if got := strings.ReplaceAll("\n"+body, "\n\t", "\n"); got != "\n"+shown {
		t.Errorf("example_test.go has\n%s\nwant what the README shows:\n%s", got, shown)
	}
	t.Setenv("SANDBOXMCP_STATE_DIR", t.TempDir())
	var out strings.Builder
	err := fortyTwo(t.Context(), &out)
	switch sandboxmcp.CodeOf(err) {
	case "":
		if got, want := out.String(), "completed42\n"; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want it to begin with %q", got, want)
		}
	case sandboxmcp.CodeIsolationUnavailable, sandboxmcp.CodeRuntimeUnavailable:
		t.Logf("it compiles, and was not run: %v", err)
	default:
		t.Error(err)
	}
}
