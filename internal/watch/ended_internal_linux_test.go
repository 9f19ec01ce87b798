package watch

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestEndedProcessesHaveNoDescriptors: locks of a process whose number a sandbox has got count for that sandbox up to the number of
// its descriptors. A program that does not wait for its children must not seem to have many.
func TestEndedProcessesHaveNoDescriptors(t *testing.T) {
	if !showsFiles() {
		t.Skip("the kernel does not show the number of descriptors")
	}
	c := exec.CommandContext(t.Context(), "true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := strconv.Itoa(c.Process.Pid)
	w := &Group{outside: true}
	testkit.Until(t, "the process has ended", func() bool { state, _ := inStatus(w.read(p, "status"), "State"); return state == "Z" })
	for range 2 { // before and after it was waited for
		if got := countFiles(filesOf(p)); got != 0 {
			t.Errorf("got %d descriptors, want none", got)
		}
		_ = c.Wait()
	}
	if got := countFiles(filesOf(strconv.Itoa(os.Getpid()))); got < 3 || got >= mostFiles {
		t.Errorf("the test's process: got %d descriptors, want some", got)
	}
}
