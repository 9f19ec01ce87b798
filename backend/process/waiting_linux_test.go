package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestPackageCodeHasLimitsBeforeItsProgram: package code runs in a ready sandbox before that is handed out. The limits
// hold there, and a program that gets another sandbox is not told that it met them.
func TestPackageCodeHasLimitsBeforeItsProgram(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		for _, takes := range []string{"memory", "locks", "processor"} {
			t.Run(name+"/"+takes, func(t *testing.T) {
				text := strings.Replace(testkit.Hostile(t, "import/later-takes.py"), `takes = ""`, `takes = "`+takes+`"`, 1)
				b := importedAhead(t, text, change...)
				for range 3 {
					p, out := importing("print('pong')", text)
					e, u, _ := begun(t, b, withPackages(spec("loaded")), p, nil)
					if e.Code != 0 || out.String() != "pong\n" || u.OOMKills > 0 || len(u.Exceeded) > 0 {
						t.Errorf("a program: got %v %q, %+v; want pong, and no limit that it met", e, out, u)
					}
					until(t, b, "one", func(n int) bool { return n > 0 })
					testkit.UntilEqual(t, "processes of the package", 0, func() int { return waiting(t) })
				}
			})
		}
	}
}

// TestAProgramOfALoadedSandboxHasItsOwnMemoryLimit: the memory of a sandbox in which package code has run is limited
// before it is handed out. From then on the limit of its request holds, whether it is lower or higher.
func TestAProgramOfALoadedSandboxHasItsOwnMemoryLimit(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	small, large := withPackages(spec("small")), withPackages(spec("large"))
	large.MemoryBytes = 3 * small.MemoryBytes
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := importedAhead(t, where, change...)
			for _, sp := range [][2]backend.Spec{{small, large}, {large, small}} {
				readyFor(t, b, sp[0], where)
				p, _ := importing("import time; x = bytearray(150 << 20); time.sleep(0.5)", where)
				e, u, _ := begun(t, b, sp[1], p, func(backend.Sandbox) {
					if n := ready(b); n != 3 {
						t.Errorf("%d are ready beside the open one, want 3", n)
					}
				})
				if fits := sp[1].MemoryBytes > 150<<20; fits != (e.Signal == 0) || fits != (u.OOMKills == 0) {
					t.Errorf("150 MiB with a limit of %d MiB, made ready for %d MiB: got %+v and %d OOM kills", sp[1].MemoryBytes>>20, sp[0].MemoryBytes>>20, e, u.OOMKills)
				}
			}
		})
	}
}

// TestPackageCodeHasNotMoreThanItsProgramMay: package code may start tasks before a sandbox is handed out. The sandbox is not
// handed out if they are more than its program may have, or have higher limits.
func TestPackageCodeHasNotMoreThanItsProgramMay(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const program = `import os
all = [p for p in os.listdir('/proc') if p.isdigit()]
print(sum(len(os.listdir('/proc/' + p + '/task')) for p in all) <= 21, len({open('/proc/' + p + '/limits').read().split('Max cpu time')[1].split()[0] for p in all}) == 1)`
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		for _, starts := range []string{"processes", "threads"} {
			t.Run(name+"/"+starts, func(t *testing.T) {
				text := strings.Replace(testkit.Hostile(t, "import/earlier-tasks.py"), `starts = ""`, `starts = "`+starts+`"`, 1)
				b := importedAhead(t, text, change...)
				sp := withPackages(spec("loaded"))
				sp.CPUTime = time.Minute
				readyFor(t, b, sp, text)
				if sp.CPUTime /= 2; starts == "threads" {
					sp.MaxTasks = 20
				}
				p, out := importing(program, text)
				if e, u, _ := begun(t, b, sp, p, nil); e.Code != 0 || out.String() != "True True\n" {
					t.Errorf("a program: got %v %q, %+v; want that no more than 21 tasks are there, with the same limit", e, out, u)
				}
			})
		}
	}
}

// readyFor runs programs that import text until each ready sandbox that loads it was built for sp. Two others load nothing.
func readyFor(t *testing.T, b backend.Backend, sp backend.Spec, text string) {
	t.Helper()
	for range 4 {
		p, _ := importing("pass", text)
		begun(t, b, sp, p, nil)
		until(t, b, "2", func(n int) bool { return n >= 2 })
	}
	until(t, b, "4, of which two load nothing", func(n int) bool { return n == 4 })
}

// waiting returns how many processes of the machine have the name of those that the packages start.
func waiting(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(text)) != "canary-waits" {
			continue
		}
		if _, err := os.Readlink(filepath.Join(filepath.Dir(path), "exe")); err == nil { // it has not ended
			n++
		}
	}
	return n
}
