package store_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func addExecution(id string, status sandboxmcp.Status) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO executions (request_id, namespace, language, status, created_at) VALUES (?, 'default', 'python', ?, 'now')`, id, status)
		return err
	}
}

func TestExecutions(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	for id, status := range map[string]sandboxmcp.Status{"a": "completed", "b": "completed", "c": "timed_out"} {
		if err := s.Update(t.Context(), addExecution(id, status)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[sandboxmcp.Status]int64{"completed": 2, "timed_out": 1}
	got, err := store.Executions(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("while it is open (-want +got): " + d)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err = store.Executions(t.Context(), storetest.On(store.Config{Dir: dir})); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("after it was closed (-want +got): " + d)
	}
}

func TestExecutionsMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	got, err := store.Executions(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v %v, want none", got, err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("got a directory, want none made")
	}
}

func TestExecutionsOfAnotherUser(t *testing.T) {
	storetest.SQLite(t)
	testkit.Root(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "sandboxmcp.db")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65125, 65125)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Executions(t.Context(), storetest.On(store.Config{Dir: dir})); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v, want backend_unavailable", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: got %v %v, want the database alone", left, err)
	}
}

func TestExecutionsRefuses(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "sandboxmcp.db")
	text := []byte("this is no database, and long enough to be looked at as one: its first hundred bytes are read as a header\n")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Executions(t.Context(), storetest.On(store.Config{Dir: dir})); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v, want backend_unavailable", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(text) {
		t.Errorf("the file: got %q %v, want it untouched", got, err)
	}
}
