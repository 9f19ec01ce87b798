package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestOnlyAbsolutePathsAreFound: what the programs of an image print is taken for a path only if it is absolute.
func TestOnlyAbsolutePathsAreFound(t *testing.T) {
	got := parseFound("python /usr/bin/python3.11 3.11.2\nnode node 18\nshell /bin/dash\nevil\n\ndone\n", "x")
	paths := map[sandboxmcp.Language]string{}
	for l, i := range got {
		paths[l] = i.Path + " " + i.Version + " " + i.Image
	}
	want := map[sandboxmcp.Language]string{sandboxmcp.Python: "/usr/bin/python3.11 3.11.2 x", sandboxmcp.Shell: "/bin/dash  x"}
	if !maps.Equal(paths, want) {
		t.Errorf("got %v, want %v", paths, want)
	}
}

// flood is a sandbox whose programs write a lot.
type flood struct {
	Sandbox
	Running
	out io.Writer
}

func (f *flood) Open(context.Context, Spec) (Sandbox, error) { return f, nil }

func (f *flood) Start(_ context.Context, p Process) (Running, error) {
	f.out = p.Stdout
	return f, nil
}

func (f *flood) Wait(context.Context) (Exit, error) {
	for range 256 {
		if n, err := f.out.Write(bytes.Repeat([]byte("x"), 64<<10)); n != 64<<10 || err != nil {
			return Exit{}, fmt.Errorf("%d bytes were taken: %w", n, err)
		}
	}
	return Exit{}, nil
}

func (*flood) Drain(context.Context) error { return nil }

func (*flood) Close(context.Context) error { return nil }

// TestAttackSearchWithMuchOutput: the programs of an image cannot fill the server's memory when interpreters are looked for.
func TestAttackSearchWithMuchOutput(t *testing.T) {
	var f flood
	if _, err := FindInterpreters(t.Context(), &f, ""); !errors.Is(err, errNoShell) {
		t.Errorf("got %v, want %v", err, errNoShell)
	}
	if kept := len(fmt.Sprint(f.out)); kept > 1<<20 {
		t.Errorf("the server has kept %d bytes", kept)
	}
}

// lostSearch is a sandbox that ends under its programs.
type lostSearch struct{ flood }

func (l *lostSearch) Open(context.Context, Spec) (Sandbox, error) { return l, nil }

func (l *lostSearch) Start(context.Context, Process) (Running, error) { return l, nil }

func (*lostSearch) Wait(context.Context) (Exit, error) { return Exit{Signal: 9, Lost: true}, nil }

// TestALostSearchDoesNotBlameTheImage: a sandbox that ends while interpreters are looked for says nothing of its image.
func TestALostSearchDoesNotBlameTheImage(t *testing.T) {
	var l lostSearch
	_, err := FindInterpreters(t.Context(), &l, "")
	if e := sandboxmcp.AsError(err); errors.Is(err, errNoShell) || e.Code != sandboxmcp.CodeBackendUnavailable || e.Hint == "" {
		t.Errorf("got %v, want that the sandbox has ended", err)
	}
}
