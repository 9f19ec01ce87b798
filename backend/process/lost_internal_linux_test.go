package process

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// TestALimitThatIsNotHeldIsWeak: a sandbox whose control group lost a limit says so.
func TestALimitThatIsNotHeldIsWeak(t *testing.T) {
	memory, tasks := "memory limit (cgroup v1)", "task limit (cgroup v2)"
	both := backend.Spec{MemoryBytes: 1, MaxTasks: 1}
	for _, c := range []struct {
		spec backend.Spec
		held []string
		want []string
	}{
		{both, []string{memory, tasks}, nil},
		{both, []string{tasks, "cpu quota (cgroup v1)"}, []string{weakMemoryLost}},
		{both, []string{memory}, []string{weakTasksLost}},
		{both, nil, []string{weakMemoryLost, weakTasksLost}},
		{backend.Spec{}, nil, nil},
	} {
		if diff := cmp.Diff(c.want, lost(c.spec, c.held)); diff != "" {
			t.Errorf("held %q (-want +got):\n%s", c.held, diff)
		}
	}
}

// TestRandomIDsAreMendedByAnotherPlace: a server that chooses user ids at random is root and has control groups.
func TestRandomIDsAreMendedByAnotherPlace(t *testing.T) {
	if got := weakFix(weakUIDs); got == weakFix(weakObjects) || got == "" {
		t.Errorf("random user ids: got the fix %q, want one of their own", got)
	}
}
