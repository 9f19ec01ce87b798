package process

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// TestHiddenProcessesAreWatched: the memory of processes that the sandbox's /proc does not
// show the server counts as that of others.
func TestHiddenProcessesAreWatched(t *testing.T) {
	b := New(Config{MinTier: sandboxmcp.TierL2, TempDir: t.TempDir(), testOnlyNoCgroup: true})
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), trialSpec("hidden"))
	if err != nil {
		t.Skipf("no sandbox can be built here: %v", err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	empty, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = empty.Close() }()
	if err := unix.Dup3(int(empty.Fd()), sb.(*sandbox).slot.Dirs[jail.DirProc], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	const hold = `x=$(head -c 40000000 /dev/zero | tr '\0' x); while :; do :; done`
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "(" + hold + ") & " + hold}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || e.Signal != 9 {
		t.Errorf("a program above its memory limit: got %+v, %v, want it ended by signal 9", e, err)
	}
	if got, err := sb.Usage(t.Context()); err != nil || got.OOMKills == 0 {
		t.Errorf("got %+v, %v, want a kill for memory", got, err)
	}
}
