package process

import (
	"bytes"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// leavesItsChild prints whether a process with a child may leave its process group.
const leavesItsChild = `
import os
r, w = os.pipe()
middle = os.fork()  # the first process of a session cannot change its group
if middle == 0:
    if os.fork() == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
    try:
        os.setpgid(0, 0)
        os._exit(0)
    except PermissionError:
        os._exit(1)
print("refused" if os.waitpid(middle, 0)[1] else "changed", flush=True)
os.close(w)
`

// TestReadyCrowdsKeepTheirGroups: code of packages may run in a ready sandbox before it is handed out. If the
// sandbox may have many tasks, a process with children cannot leave their process group there, either. A request
// for few tasks does not get such a sandbox.
func TestReadyCrowdsKeepTheirGroups(t *testing.T) {
	testkit.Need(t, "notices", jail.HaveNotices(), "calls that wait cannot be killed before Linux 5.19")
	b := New(Config{})
	defer func() { _ = b.Close(t.Context()) }()
	few, many := trialSpec("few"), trialSpec("many")
	many.MaxTasks = 4000
	sb, err := b.Open(t.Context(), few) // makes the jail
	if err != nil {
		t.Skipf("no sandbox can be built here: %v", err)
	}
	_ = sb.Close(t.Context())
	if b.keyOf(few) == b.keyOf(many) {
		t.Error("a ready sandbox for 4000 tasks serves requests for 16, want a kind of its own")
	}
	for want, spec := range map[string]backend.Spec{"changed\n": few, "refused\n": many} {
		s, ok := b.builder(spec, prospect{})()
		if !ok {
			t.Skip("no sandbox is made ready here")
		}
		var out bytes.Buffer
		p, err := s.Start(t.Context(), backend.Process{
			Argv: []string{"/usr/bin/python3", "-S", "-I", backend.ProgramDir + "/main.py"}, Env: []string{"PATH=/usr/bin:/bin"},
			Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(leavesItsChild)}}, Stdout: &out,
		})
		if err == nil {
			_, err = p.Wait(t.Context())
		}
		if got := out.String(); got != want || err != nil {
			t.Errorf("%d tasks: got %q and %v, want %q", spec.MaxTasks, got, err, want)
		}
		_ = s.end()
	}
}
