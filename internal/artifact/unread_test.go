package artifact_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
)

// failing is a directory of which one name cannot be opened or listed.
type failing struct {
	*dir
	name string
	err  error
}

func (f failing) Open(ctx context.Context, name string) (backend.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.dir.Open(ctx, name)
}

func (f failing) List(ctx context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	if name == f.name {
		return nil, false, &fs.PathError{Op: "list", Path: name, Err: f.err}
	}
	return f.dir.List(ctx, name, limit)
}

// TestAReadErrorOfTheMachineFailsTheCollection: a file that is lost is no file
// that is skipped. What a program does to rights and names skips a file only.
func TestAReadErrorOfTheMachineFailsTheCollection(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		fails bool
	}{
		{"f", syscall.EIO, true},
		{"f", syscall.ENOMEM, true},
		{"f", syscall.EMFILE, true},
		{"d", syscall.EIO, true},
		{"d", syscall.ENFILE, true},
		{"f", syscall.EACCES, false},
		{"f", syscall.ENOENT, false},
		{"f", syscall.ENXIO, false}, // a socket in its place
		{"d", syscall.EACCES, false},
		{"d", syscall.ENOTDIR, false},
		{".", syscall.EACCES, false}, // without root, a program that goes on in a session can close it
		{".", syscall.EIO, true},
		{".", syscall.ENOENT, true},
	} {
		t.Run(c.name+" "+c.err.Error(), func(t *testing.T) {
			k := newKit(t, artifact.Config{})
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "d"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "f"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := k.Collect(context.WithoutCancel(t.Context()), artifact.Source{RequestID: "req", Now: now, Files: failing{&dir{root: root}, c.name, c.err}})
			switch {
			case c.fails && sandboxmcp.CodeOf(err) != sandboxmcp.CodeExecutionFailed:
				t.Errorf("got %+v and error %v, want %s", got, err, sandboxmcp.CodeExecutionFailed)
			case !c.fails && (err != nil || len(got.Skipped) != 1):
				t.Errorf("got skipped %+v and error %v, want one skipped", got.Skipped, err)
			}
		})
	}
}
