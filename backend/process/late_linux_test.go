package process_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestTasksOfAnUnendedSandboxCount: a sandbox that the kernel does not end in time keeps its part of the
// machine's tasks, and gives it back when it has ended. The freezer of cgroup version 1 stands in for a
// program that is in a call which no signal ends.
func TestTasksOfAnUnendedSandboxCount(t *testing.T) {
	if testing.Short() {
		t.Skip("a kill waits for five seconds")
	}
	frozen := filepath.Join("/sys/fs/cgroup/freezer", fmt.Sprintf("sandboxmcp-test-%d", os.Getpid()))
	err := os.Mkdir(frozen, 0o755)
	testkit.Need(t, "freezer", err == nil, fmt.Sprint(err))
	defer func() { _ = os.Remove(frozen) }()
	b := newBackend()(t)
	sb, err := b.Open(t.Context(), spec("unended"))
	if err != nil {
		t.Fatal(err)
	}
	before := process.Reserved(b)
	put := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(frozen, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("cgroup.procs", strconv.Itoa(process.InitOf(sb)))
	put("freezer.state", "FROZEN")
	err = sb.Close(t.Context())
	if after := process.Reserved(b); err == nil || after != before {
		t.Errorf("a sandbox that does not end: got error %v and %d tasks, want an error and %d", err, after, before)
	}
	put("freezer.state", "THAWED")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		after := process.Reserved(b)
		if after == before-spec("unended").MaxTasks {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the end: got %d tasks, want %d", after, before-spec("unended").MaxTasks)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAKillEndsReadsThatNoSignalEnds: many threads are in calls of which each takes a second of a processor, and
// which end only when the memory that they copy to is gone.
func TestAKillEndsReadsThatNoSignalEnds(t *testing.T) {
	b := newBackend()(t)
	defer b.Close(t.Context())
	testkit.Need(t, "namespaces", b.Capabilities(t.Context()).Isolation.Tier.AtLeast("L2"), "without namespaces no memory is taken")
	_, err := os.Stat("/proc/self/pagemap")
	testkit.Need(t, "pagemap", err == nil, fmt.Sprint(err))
	buffers := []string{"private"}
	if os.Geteuid() == 0 { // others cannot take shared memory
		buffers = append(buffers, "shared")
	}
	for _, buffer := range buffers {
		for end, call := range map[string]func(backend.Sandbox, context.Context) error{"Kill": backend.Sandbox.Kill, "Clear": backend.Sandbox.Clear} {
			t.Run(buffer+" "+end, func(t *testing.T) { endReads(t, b, buffer, call) })
		}
	}
}

// endReads starts the reads in a sandbox and ends them by call.
func endReads(t *testing.T, b backend.Backend, buffer string, call func(backend.Sandbox, context.Context) error) {
	sp := spec("reads")
	sp.CPUCores = float64(runtime.NumCPU()) // a read exceeds a smaller share, and the others would wait to begin
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	r, up := startHostile(t, sb, "reads-without-end.py", buffer)
	if !within(up, 60*time.Second) {
		t.Error("got no output within 60 s, want up")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // what a kill may take
	defer cancel()
	if err := call(sb, ctx); err != nil {
		t.Errorf("got %v, want nil within the limit", err)
	}
	if _, err := r.Wait(ctx); err != nil {
		t.Errorf("Wait: got %v, want the end", err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
}
