package process_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// preparedScript waits where it has prepared a program, and prints what "wait" returns.
const preparedScript = `
import posix, sys
got = wait("the path", [("/mnt/data/there", False), ("/run/program", True)], None, ("any", "other"))
print(got, sys.orig_argv[3:], sys.argv[1:], posix.environ.get(b"MORE"), posix.getcwd())
`

// TestForkIsWhatTheZygotePrepared: a fork is the prepared program only if arguments, but for the
// variant, environment and the files that were looked for are the same. Else it gets its own.
func TestForkIsWhatTheZygotePrepared(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	hatched := false
	run := func(change func(*backend.Process), before func(backend.Sandbox)) string {
		t.Helper()
		p, _ := forkable("")
		p.Prestart.Program[0].Data = testkit.ForkServer(preparedScript)
		p.Program = []backend.ProgramFile{{Name: "boot.py", Data: []byte("print('executed')")}}
		p.Argv[3] = "any"
		var out bytes.Buffer
		p.Stdout, p.Stderr = &out, &out
		if change != nil {
			change(&p)
		}
		if e, _, _ := begun(t, b, spec("prepared"), p, before); e.Code != 0 {
			t.Fatalf("got %v, %s, want code 0", e, out.String())
		}
		return strings.TrimSpace(out.String())
	}
	for range 40 {
		if hatched = run(nil, nil) != "executed"; hatched {
			break
		}
	}
	testkit.Need(t, "zygote", hatched, "nothing is forked here")
	for name, c := range map[string]struct {
		change func(*backend.Process)
		before func(backend.Sandbox)
		want   string
	}{
		"Prepared":    {want: "('any', 'the path') ['any'] ['any'] None /mnt/data"},
		"Variant":     {change: func(p *backend.Process) { p.Argv[3] = "other" }, want: "('other', 'the path') ['other'] ['any'] None /mnt/data"},
		"Argument":    {change: func(p *backend.Process) { p.Argv[3] = "third" }, want: "None ['third'] ['third'] None /mnt/data"},
		"MoreOfThem":  {change: func(p *backend.Process) { p.Argv = append(p.Argv, "more") }, want: "None ['any', 'more'] ['any', 'more'] None /mnt/data"},
		"Environment": {change: func(p *backend.Process) { p.Env = append(p.Env, "MORE=x") }, want: "None ['any'] ['any'] b'x' /mnt/data"},
		"Place": {before: func(s backend.Sandbox) {
			if err := s.Files().Put(t.Context(), "there", nil, true); err != nil {
				t.Fatal(err)
			}
		}, want: "None ['any'] ['any'] None /mnt/data"},
	} {
		if got := run(c.change, c.before); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	// A package that is imported may change objects that the zygote prepared before.
	loads := func(p *backend.Process) { p.Prestart.Fork.Load = []byte("loaded = 1\n") }
	tried, err := process.Tried(b.(*process.Backend))
	for i := 0; i < 100 && !tried; i++ {
		run(loads, nil)
		tried, err = process.Tried(b.(*process.Backend))
	}
	if !tried || err != nil {
		t.Fatalf("a fork that imports: got %v, %v, want it made", tried, err)
	}
	if got, want := run(loads, nil), "None ['any'] ['any'] None /mnt/data"; got != want {
		t.Errorf("a fork that has loaded packages: got %q, want %q", got, want)
	}
}
