package engine

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestRehearsalKeepsNothing: the encoding of an empty result works, and leaves neither a record nor a result.
func TestRehearsalKeepsNothing(t *testing.T) {
	var log bytes.Buffer
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	e.rehearse()
	list, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{})
	if err != nil || len(list.Entries) > 0 {
		t.Errorf("got %+v and %v, want no entry", list, err)
	}
	if _, err = e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("got %v, want no result", err)
	}
	if err = e.Close(); err != nil {
		t.Error(err)
	}
	if bytes.Contains(log.Bytes(), []byte("rehearse")) {
		t.Errorf("it failed:\n%s", &log)
	}
}
