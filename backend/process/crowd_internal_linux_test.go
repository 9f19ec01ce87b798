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
		if got := printed(t, s, leavesItsChild); got != want {
			t.Errorf("%d tasks: got %q, want %q", spec.MaxTasks, got, want)
		}
		_ = s.end()
	}
}

// printed returns what a Python program prints in a sandbox.
func printed(t *testing.T, sb backend.Sandbox, code string) string {
	t.Helper()
	var out bytes.Buffer
	p, err := sb.Start(t.Context(), backend.Process{
		Argv: []string{"/usr/bin/python3", "-S", "-I", backend.ProgramDir + "/main.py"}, Env: []string{"PATH=/usr/bin:/bin"},
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(code)}}, Stdout: &out,
	})
	if err == nil {
		if _, err = p.Wait(t.Context()); err == nil {
			err = p.Drain(t.Context())
		}
	}
	if err != nil {
		t.Error(err)
	}
	return out.String()
}

// joinsOthers prints how many of 100 processes may join the group of another.
const joinsOthers = `
import os
joined = 0
if os.fork() == 0:
    os.setpgid(0, 0)
    group = os.getpid()
    for _ in range(100):
        if os.fork() == 0:
            try:
                os.setpgid(0, 0)
                os.setpgid(0, group)
                os._exit(0)
            except PermissionError:
                os._exit(1)
        joined += os.wait()[1] == 0
    print(joined, flush=True)
    os._exit(0)
os.wait()
`

// TestACrowdJoinsAsItsRequestMay: a ready sandbox is built for as many tasks as any request may have, with which
// programs join others' groups 32 times at most. A request for fewer tasks gets more.
func TestACrowdJoinsAsItsRequestMay(t *testing.T) {
	testkit.Need(t, "notices", jail.HaveNotices(), "calls that wait cannot be killed before Linux 5.19")
	b := New(Config{})
	defer func() { _ = b.Close(t.Context()) }()
	spec := trialSpec("many")
	spec.MaxTasks = 2000
	for range 2 {
		sb, err := b.Open(t.Context(), spec)
		if err != nil {
			t.Skipf("no sandbox can be built here: %v", err)
		}
		_ = sb.Close(t.Context())
	}
	testkit.Until(t, "one is ready", func() bool { return b.ready.Len() > 0 })
	sb, err := b.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	if got := printed(t, sb, joinsOthers); got != "100\n" {
		t.Errorf("got %q processes that joined, want 100", got)
	}
}
