package server

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestCausesInTheLogAreBounded: a cause that repeats a long argument does not fill the log.
func TestCausesInTheLogAreBounded(t *testing.T) {
	cause := errors.New("open " + strings.Repeat("a/", 100_000) + ": file name too long")
	for name, err := range map[string]error{"internal": cause, "coded": sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "it is not there").WithCause(cause)} {
		var log strings.Builder
		_ = told(slog.New(slog.NewTextHandler(&log, nil)), "read", err)
		if text := log.String(); len(text) > maxLogged+1000 || !strings.Contains(text, "open a/") || !strings.Contains(text, "file name too long") {
			t.Errorf("%s: got %d bytes, want the beginning and the end of the cause", name, len(text))
		}
	}
}
