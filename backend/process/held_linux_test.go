package process_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// TestAProgramThatDelaysTheServerIsKilled: a call of the server waits until a program ends, which sleeps for longer than
// a test may take.
func TestAProgramThatDelaysTheServerIsKilled(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "100000"}})
	if err != nil {
		t.Fatal(err)
	}
	err = process.OrKill(sb, func() error {
		e, err := r.Wait(t.Context())
		if err == nil && e.Signal != 9 {
			t.Errorf("got %+v, want signal 9", e)
		}
		return err
	})
	if err != nil {
		t.Errorf("got %v, want that the call ends without an error", err)
	}
}
