package process_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// importing is a program that may be forked and load what text imported.
func importing(program, text string) (backend.Process, interface{ String() string }) {
	p, out := forkable(program)
	p.Prestart.Fork.Load = []byte(text)
	return p, out
}

// made runs programs until the attempt to import has ended, and returns the attempt's error.
func made(t *testing.T, b *process.Backend, text string) error {
	t.Helper()
	return madeIf(t, b, text, nil)
}

// madeIf is made for an import whose files are checked.
func madeIf(t *testing.T, b *process.Backend, text string, check backend.LoadCheck) error {
	t.Helper()
	_, _ = process.Tried(b)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		p, out := importing("print('pong')", text)
		p.Prestart.Fork.Check = check
		if e, _, _ := begun(t, b, spec("import"), p, nil); e.Code != 0 || out.String() != "pong\n" {
			t.Fatalf("got %v, %q, want 0, pong", e, out)
		}
		if tried, err := process.Tried(b); tried {
			return err
		}
	}
	t.Fatal("got no attempt to import within a minute, want one")
	return nil
}

// importedAhead returns a backend whose forks find text imported. The test's end closes it.
func importedAhead(t *testing.T, text string, change ...func(*process.Config)) backend.Backend {
	t.Helper()
	b := newBackend(change...)(t)
	t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
	hatched(t, b, spec("warm"))
	if err := made(t, b.(*process.Backend), text); err != nil {
		t.Fatalf("got %v, want that it is imported ahead", err)
	}
	return b
}

// where is the text of a module's import that tells in which sandbox it ran.
const where = "import posix\nat = (posix.readlink('/proc/self/ns/pid'), posix.stat('/dev/shm').st_ctime_ns)\n"

// TestForkLoadsWhatAnotherImported: forks load packages that another fork imported, on demand
// and ahead in a ready sandbox.
func TestForkLoadsWhatAnotherImported(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const program = "import posix; print('at' in globals() and at != (posix.readlink('/proc/self/ns/pid'), posix.stat('/dev/shm').st_ctime_ns), sorted(posix.listdir('/proc/self/fd'))[:-1], posix.getppid())"
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := importedAhead(t, where, change...)
			for i := range 6 {
				p, out := importing(program, where)
				if e, _, _ := begun(t, b, withPackages(spec("loaded")), p, nil); e.Code != 0 || out.String() != "True ['0', '1', '2'] 1\n" {
					t.Errorf("run %d: got %v %q, want True ['0', '1', '2'] 1", i, e, out)
				}
				if i == 2 { // the first ones forked on demand, the others are to find ready sandboxes
					until(t, b, "some", func(n int) bool { return n > 0 })
				}
			}
			p, out := forkable("print('at' in globals())")
			if e, _, _ := begun(t, b, spec("other"), p, nil); e.Code != 0 || out.String() != "False\n" {
				t.Errorf("one that imports nothing: got %v %q, want False", e, out)
			}
		})
	}
}

// TestWhatProgramsReadIsMappedAhead: a fork that waits in a ready sandbox has mapped the pages of imported packages that programs
// read, so that reading them causes no page faults.
func TestWhatProgramsReadIsMappedAhead(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const text = `
import atexit, posix
data = [bytearray(b'x' * 16384) for _ in range(1000)]
def again(): pass
def typical():
    sum(d[0] for d in data)
    atexit.register(lambda: posix._exit(0))  # as the driver ends
again.typical = typical
`
	const program = "import resource\nfaults = lambda: resource.getrusage(0).ru_minflt\nbefore = faults()\nsum(d[0] for d in data)\nprint(faults() - before)"
	b := importedAhead(t, text)
	for range 6 {
		p, out := importing(program, text)
		if e, _, _ := begun(t, b, withPackages(spec("mapped")), p, nil); e.Code != 0 {
			t.Fatalf("got %v %q, want a number", e, out)
		}
		until(t, b, "some", func(n int) bool { return n > 0 })
		n, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil {
			t.Fatal(err)
		}
		if n < 60 { // the kernel maps 64 KiB for each of 250 faults
			return
		}
		t.Logf("%d page faults", n) // the first ones are made on demand
	}
	t.Error("each program made page faults when it read, want one that made few")
}

// kebab returns the file name of a case: AwaitsForever is awaits-forever.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// TestHostileImportHarmsOnlyItself: whatever an import writes, reports or does, it fails with
// its reason, and programs run without it.
func TestHostileImportHarmsOnlyItself(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, want := range map[string]string{
		"Garbage":       "invalid argument",
		"Empty":         "0 bytes",
		"Operations":    "cannot allocate memory",
		"None":          "no such file",
		"Link":          "symbolic links",
		"Pipe":          "invalid argument",
		"TooLarge":      "want 1 to",
		"Flood":         "failed",
		"Dies":          "has ended",
		"Raises":        "KeyError",
		"Threads":       "there are threads",
		"OnItsChannel":  "broken pipe",
		"Descriptor":    "there are open files",
		"AwaitsForever": "does not answer",
		"SharedMemory":  "a fork failed",
		"OverTheLoader": "invalid argument",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			if err := made(t, b.(*process.Backend), testkit.Hostile(t, "import/"+kebab(name)+".py")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
			if n := pool(b)["zygotes"]; n != 1 {
				t.Errorf("got %d zygotes, want 1", n)
			}
		})
	}
}

// TestImportIsCheckedBeforeAndAfter: if the check of a package's files fails before the import, the
// package is not imported ahead. If the check fails after the import, no program gets the imported package.
func TestImportIsCheckedBeforeAndAfter(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, c := range map[string]struct {
		text   string
		failed bool // the check that fails has loaded true
		want   string
	}{
		"Before": {"raise KeyError", false, "a check before"},
		"After":  {where, true, "a check after"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			var checks atomic.Int32
			err := madeIf(t, b.(*process.Backend), c.text, func(_ context.Context, loaded bool) error {
				if checks.Add(1); loaded != c.failed {
					return nil
				}
				return errors.New(c.want)
			})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if got, want := checks.Load() > 1, c.failed; got != want {
				t.Errorf("got more than one check: %v, want %v", got, want)
			}
			if n := pool(b)["imports"]; n != 0 {
				t.Errorf("got %d imports that are kept, want none", n)
			}
		})
	}
}

// TestImportThatFailsLater: an import that loads in the trial and fails in a program's sandbox
// delays that program, which runs all the same.
func TestImportThatFailsLater(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for _, name := range []string{"Hangs", "Dies", "Stays"} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			text := testkit.Hostile(t, "import/later-"+kebab(name)+".py")
			if err := made(t, b.(*process.Backend), text); err != nil {
				t.Fatalf("got %v, want that it is imported ahead", err)
			}
			for range 4 {
				p, out := importing("print('pong')", text)
				if e, _, _ := begun(t, b, spec("later"), p, nil); e.Code != 0 || out.String() != "pong\n" {
					t.Errorf("got %v %q, want 0, pong", e, out)
				}
			}
		})
	}
}

// withPackages says that the program imports packages, so that they may be loaded ahead.
func withPackages(s backend.Spec) backend.Spec {
	s.Loads = "a package"
	return s
}

// TestPackageCodeRunsBeforeNoOtherProgram: a program that imports nothing finds no file
// that package code wrote in a ready sandbox.
func TestPackageCodeRunsBeforeNoOtherProgram(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	text := testkit.Hostile(t, "import/plants-files.py")
	for name, sp := range map[string]backend.Spec{"Announced": withPackages(spec("imports")), "Unannounced": spec("imports")} {
		t.Run(name, func(t *testing.T) {
			b := importedAhead(t, text)
			for range 3 {
				for range 3 {
					p, out := importing("import posix; print('json.py' in posix.listdir('/tmp'))", text)
					if e, _, _ := begun(t, b, sp, p, nil); e.Code != 0 || out.String() != "True\n" {
						t.Errorf("one that imports: got %v %q, want True", e, out)
					}
				}
				until(t, b, "some", func(n int) bool { return n > 0 })
				p, out := forkable("import posix; print(posix.listdir('/tmp') + posix.listdir('/mnt/data'))")
				if e, _, _ := begun(t, b, spec("other"), p, nil); e.Code != 0 || out.String() != "[]\n" {
					t.Errorf("one that imports nothing: got %v %q, want []", e, out)
				}
			}
		})
	}
}

// TestPackageCodeHasNoDescriptorOfOthers: before its program comes, package code in a fork has streams of its own. Those
// of the zygote are the same for all forks, so programs could talk with each other.
func TestPackageCodeHasNoDescriptorOfOthers(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const text = where + `
import os
def later():
    global had
    had = [os.readlink("/proc/self/fd/" + n) for n in sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd/" + n)]
os.register_at_fork(after_in_child=later)
`
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := importedAhead(t, text, change...)
			p, out := importing("print(had[:3], len(had), [h for h in had if 'snapshot' in h])", text)
			if e, _, _ := begun(t, b, withPackages(spec("loaded")), p, nil); e.Code != 0 || out.String() != "['/dev/null', '/dev/null', '/dev/null'] 5 []\n" {
				t.Errorf("got %v %q, want three times /dev/null, a socket and a pipe of its own, and nothing of the snapshot", e, out)
			}
		})
	}
}

// TestALoadThatNoProgramHasMakesRoom: a zygote has few snapshots. Those that programs no longer ask for do not keep it
// from making others.
func TestALoadThatNoProgramHasMakesRoom(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	process.BoundForks(b.(*process.Backend), 1000, 10*time.Minute, 0, 3)
	hatched(t, b, spec("warm"))
	for i := range jail.MaxSnapshots + 2 {
		if err := made(t, b.(*process.Backend), where+strings.Repeat("\n", i)); err != nil {
			t.Fatalf("import %d: got %v, want that it is imported ahead", i, err)
		}
		if n := pool(b)["imports"]; n != min(i+1, jail.MaxSnapshots) {
			t.Errorf("import %d: got %d snapshots, want %d", i, n, min(i+1, jail.MaxSnapshots))
		}
	}
}
