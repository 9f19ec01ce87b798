package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
				b := newBackend(change...)(t)
				defer func() { _ = b.Close(t.Context()) }()
				hatched(t, b, spec("warm"))
				text := strings.Replace(testkit.Hostile(t, "import/later-takes.py"), `takes = ""`, `takes = "`+takes+`"`, 1)
				if err := made(t, b.(*process.Backend), text); err != nil {
					t.Fatalf("got %v, want that it is imported ahead", err)
				}
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
