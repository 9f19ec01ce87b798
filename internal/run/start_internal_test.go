package run

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestAnInterpreterThatCannotBeExecutedSendsToDoctor: asking again does not help there.
func TestAnInterpreterThatCannotBeExecutedSendsToDoctor(t *testing.T) {
	for _, c := range []struct {
		err    error
		doctor bool
	}{{fmt.Errorf("start program: %w", fs.ErrPermission), true}, {fs.ErrNotExist, true}, {errors.New("x"), false}} {
		e := sandboxmcp.AsError(notExecuted(c.err))
		if got := strings.Contains(e.Hint, "doctor"); got != c.doctor || e.Code != sandboxmcp.CodeExecutionFailed || !errors.Is(e, c.err) {
			t.Errorf("%v: got %s, hint %q, want a hint to doctor: %t", c.err, e.Code, e.Hint, c.doctor)
		}
	}
}
