package guard_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

func TestAFailureHasNoSecretInItsCause(t *testing.T) {
	const secret = "Kit-5up3r-s3cret-t0ken"
	m := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	cause := &fs.PathError{Op: "open", Path: secret + ".txt", Err: fs.ErrPermission}
	got := guard.Failure(m, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s cannot be read", secret).WithCause(cause).
		With("issues", []sandboxmcp.Issue{{Line: 3, Message: secret}}).With("name", secret).With("limit", 7).With("none", nil))
	if strings.Contains(got.Message, secret) || strings.Contains(got.Err.Error(), secret) {
		t.Errorf("got %q because of %q, want neither to hold the secret", got.Message, got.Err)
	}
	want := map[string]any{"issues": []sandboxmcp.Issue{{Line: 3, Message: redact.Mask}}, "name": redact.Mask, "limit": 7, "none": nil}
	if d := cmp.Diff(want, got.Fields); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	if !errors.Is(got, fs.ErrPermission) {
		t.Errorf("%v is not %v any more", got, fs.ErrPermission)
	}
}
