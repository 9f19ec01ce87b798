package process_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestPreparedForTheProgram: the server has prepared files and streams in a ready sandbox for one program, and another
// program is started there. That program has only the files, streams and input of its own request.
func TestPreparedForTheProgram(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	process.BoundForks(b.(*process.Backend), 1000, 10*time.Minute, 0, 3) // on a busy machine a zygote may be given up, which rests for a minute
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("prepared")
	const lists = "import os; print(sorted(os.listdir('/run/program')), len(open('/run/program/boot.py').read()), len(os.listdir('/proc/self/fd')) - 1)"
	usual := func() {
		if out, e, _, _ := ran(t, b, sp, lists); e.Code != 0 {
			t.Fatalf("got %v, %s, want code 0", e, out)
		}
	}
	for i := 0; i < 40 && process.Prepared(b.(*process.Backend)) == 0; i++ {
		usual()
	}
	testkit.Need(t, "zygote", process.Prepared(b.(*process.Backend)) > 0, "nothing is forked here")
	other, tries := []byte(forkScript+"# longer\n"), 12
	shell := []string{"/bin/sh", "-c", "ls /run/program; cat; ls /proc/$$/fd; :"}
	for name, c := range map[string]struct {
		change func(*backend.Process)
		want   string
	}{
		"Same":     {func(*backend.Process) {}, fmt.Sprintf("['boot.py', 'main.py'] %d 3\n", len(forkScript))},
		"Provided": {func(*backend.Process) {}, fmt.Sprintf("['boot.py', 'main.py'] %d 3\n", len(forkScript))},
		"Channel":  {func(p *backend.Process) { p.Channels = 1 }, fmt.Sprintf("['boot.py', 'main.py'] %d 4\n", len(forkScript))},
		"Driver":   {func(p *backend.Process) { p.Program[0].Data = other }, fmt.Sprintf("['boot.py', 'main.py'] %d 3\n", len(other))},
		"NoDriver": {func(p *backend.Process) { p.Argv, p.Program = shell, nil }, "0\n1\n2\n"},
		"Stdin":    {func(p *backend.Process) { p.Argv, p.Program, p.Stdin = shell, nil, []byte("input\n") }, "input\n0\n1\n2\n"},
	} {
		waits := func() bool { return process.Prepared(b.(*process.Backend)) > 0 }
		for usual(); !testkit.Within(t, 5*time.Second, waits) && !t.Failed(); usual() { // the next sandbox is made ready for the usual program
			if tries--; tries < 0 {
				t.Fatalf("%s: no fork waits", name)
			}
		}
		p, out := forkable(lists)
		c.change(&p)
		var before func(backend.Sandbox)
		if name == "Provided" {
			before = func(sb backend.Sandbox) {
				if err := sb.Provide(t.Context(), []backend.ProgramFile{{Name: "boot.py", Data: other}}); err != nil {
					t.Error(err)
				}
			}
		}
		if e, _, _ := begun(t, b, sp, p, before); e.Code != 0 || !bytes.Equal(out.Bytes(), []byte(c.want)) {
			t.Errorf("%s: got %v, %q, want %q", name, e, out.String(), c.want)
		}
	}
}
