package process_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// TestJailsAreBounded: many different lists of trees leave no more than a few jails, and no
// jail is closed while a sandbox lives in it.
func TestJailsAreBounded(t *testing.T) {
	before := backendtest.Count(t)
	b := newBackend()(t)
	open := func(tree string) backend.Sandbox {
		sp := spec("jails")
		sp.Trees = backend.Trees(tree)
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	stays := open(t.TempDir())
	for range 12 {
		if err := open(t.TempDir()).Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := b.(*process.Backend).Jails(); got > 8 {
		t.Errorf("got %d jails, want at most 8", got)
	}
	r, err := stays.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "exit 7"}})
	if err != nil {
		t.Fatalf("the sandbox that stays: got %v, want it alive", err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Code != 7 {
		t.Errorf("got %+v, %v, want code 7", e, err)
	}
	if err := stays.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	before.Same(t)
}

// TestOnlyFilesAndDirectoriesAreShown: a path that is neither a file nor a directory is
// refused when a sandbox is opened, also in a jail that already exists. A program could
// connect to a socket of the host.
func TestOnlyFilesAndDirectoriesAreShown(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	first, err := b.Open(t.Context(), spec("first"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close(t.Context()) }()
	if !b.Capabilities(t.Context()).Attach {
		t.Skip("nothing can be attached here")
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, host := range []string{socket, "/dev/null"} {
		sp := spec("shown")
		sp.Trees = []backend.Tree{{Host: host, Inside: backend.PackageDir + "/x"}}
		sb, err := b.Open(t.Context(), sp)
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %v, want %s", host, err, sandboxmcp.CodeInvalidArgument)
		}
		if err == nil {
			_ = sb.Close(t.Context())
		}
	}
}

// TestEndedUnderAttachAndDial: a sandbox that ends while something is attached to it, or one
// of its ports is called, has ended, which is no fault of the walls.
func TestEndedUnderAttachAndDial(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	if c := b.Capabilities(t.Context()); !c.Attach || !c.Dial {
		t.Skip("nothing can be attached or called here")
	}
	tree := backend.Tree{Host: t.TempDir(), Inside: backend.PackageDir + "/x"}
	for range 60 {
		sb, err := b.Open(t.Context(), spec("ends"))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if err := sb.Attach(t.Context(), tree); err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
				t.Errorf("Attach: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
			}
		})
		all.Go(func() {
			c, err := sb.Dial(t.Context(), 77)
			if err == nil {
				_ = c.Close()
			}
			if sandboxmcp.CodeOf(err) == sandboxmcp.CodeIsolationUnavailable {
				t.Errorf("Dial: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
			}
		})
		all.Go(func() { _ = sb.Kill(t.Context()) })
		all.Wait()
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			return
		}
	}
}

// TestManyTrees: a namespace may have 32 sets of packages for each of two languages. Its sandboxes show
// them all, and more can be attached.
func TestManyTrees(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	if !b.Capabilities(t.Context()).Attach {
		t.Skip("nothing can be attached here")
	}
	tree := func(i int) backend.Tree {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(strconv.Itoa(i)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return backend.Tree{Host: dir, Inside: backend.PackageDir + "/t" + strconv.Itoa(i)}
	}
	const first, more = 65, 2
	sp := spec("many")
	for i := range first {
		sp.Trees = append(sp.Trees, tree(i))
	}
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	for i := range more {
		if err := sb.Attach(t.Context(), tree(first+i)); err != nil {
			t.Fatalf("tree %d: %v", first+i, err)
		}
	}
	got := shell(t, sb, "cat "+backend.PackageDir+"/*/f | sort -n | tr '\\n' ' '; touch "+backend.PackageDir+"/t0/x "+backend.PackageDir+"/x 2>/dev/null || echo refused")
	want := ""
	for i := range first + more {
		want += strconv.Itoa(i) + " "
	}
	if got != want+"refused\n" {
		t.Errorf("programs see %q, want %q and a refusal to write", got, want)
	}
}
