package guard_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

func TestAFailureHasNoSecretInItsCause(t *testing.T) {
	const secret = "Kit-5up3r-s3cret-t0ken"
	m := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	cause := &fs.PathError{Op: "open", Path: secret + ".txt", Err: fs.ErrPermission}
	got := guard.Failure(m, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s cannot be read", secret).WithCause(cause))
	if strings.Contains(got.Message, secret) || strings.Contains(got.Err.Error(), secret) {
		t.Errorf("got %q because of %q, want neither to hold the secret", got.Message, got.Err)
	}
	if !errors.Is(got, fs.ErrPermission) {
		t.Errorf("%v is not %v any more", got, fs.ErrPermission)
	}
}
