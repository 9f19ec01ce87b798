package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

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
