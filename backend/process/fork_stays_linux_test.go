package process_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// tellsMemory prints its process number, 3 in a fork, and the KiB that it has to itself.
const tellsMemory = `
import os
with open("/proc/self/smaps_rollup") as f:
    print(os.getpid(), [line.split()[1] for line in f if line.startswith("Private_Dirty:")][0])
`

// staying is forkable for an interpreter that lives long.
func staying(program string) (backend.Process, *bytes.Buffer) {
	p, out := forkable(program)
	p.Prestart.Fork.Stays = true
	return p, out
}

// becomes waits until the pool has want of a kind.
func becomes(t *testing.T, b backend.Backend, kind string, want int) {
	t.Helper()
	testkit.UntilEqual(t, kind+" in the pool", want, func() int { return pool(b)[kind] })
}

// TestForksThatStay keeps sandboxes, as sessions do: the first process of the first one
// is forked, one more is ready however many are kept, and forks share what they can.
func TestForksThatStay(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("stays")
	p, _ := staying("")
	sp.Stays, sp.Prestart = true, p.Prestart
	begin := func(id string) backend.Sandbox {
		t.Helper()
		sp.ID = id
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sb.Close(context.WithoutCancel(t.Context())) })
		return sb
	}
	run := func(sb backend.Sandbox) (pid string, kib int) {
		t.Helper()
		p, out := staying(tellsMemory)
		r, err := sb.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		return took(t, out.String())
	}
	first := begin("stays-1")
	becomes(t, b, "zygotes", 1) // before anything was started
	if pid, _ := run(first); pid != "3" {
		t.Fatalf("the first process: got number %s, want 3, a fork", pid)
	}
	if pid, _ := run(first); pid == "3" {
		t.Fatal("the second process of a sandbox: got a fork, want it executed")
	}
	second := begin("stays-2")
	if pid, _ := run(second); pid != "3" {
		t.Errorf("the first process of the second sandbox: got number %s, want 3, a fork", pid)
	}
	run(second) // is executed, and does not say how the next sandbox begins
	becomes(t, b, "slots_ready", 1)
	begin("stays-3")
	becomes(t, b, "slots_ready", 1)
	becomes(t, b, "processes_ahead", 1)
	pid, stays := run(begin("stays-4"))
	if pid != "3" {
		t.Errorf("got process number %s, want 3, the fork that waited", pid)
	}
	other := newBackend()(t)
	defer func() { _ = other.Close(t.Context()) }()
	hatched(t, other, spec("usual"))
	for i := 0; i < 20 && (pool(other)["processes_ahead"] == 0 || pool(other)["processes_ahead"] != pool(other)["slots_ready"]); i++ {
		ran(t, other, spec("usual"), "import time; time.sleep(.1)")
	}
	out, _, _, _ := ran(t, other, spec("usual"), tellsMemory)
	if pid, usual := took(t, out); pid != "3" || 2*stays > usual {
		t.Errorf("memory of its own: got %d KiB for a fork that stays and, in process %s, %d for one that does not; want at most half", stays, pid, usual)
	}
}

// took reads what tellsMemory printed.
func took(t *testing.T, out string) (pid string, kib int) {
	t.Helper()
	f := strings.Fields(out)
	if len(f) != 2 {
		t.Fatalf("output: got %q, want 2 words", out)
	}
	kib, err := strconv.Atoi(f[1])
	if err != nil {
		t.Fatal(err)
	}
	return f[0], kib
}
