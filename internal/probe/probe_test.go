package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// bare runs a program of probes without any wall or limit, as this user. That is safe, because
// probes do no harm when they succeed.
func bare(ctx context.Context, t *testing.T, req sandboxmcp.Request) sandboxmcp.Result {
	t.Helper()
	python, err := exec.LookPath("python3")
	testkit.Need(t, "python", err == nil, "no python3 on the PATH")
	cmd := exec.CommandContext(ctx, python, "-I", "-c", req.Code)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.TempDir(), bytes.NewReader(req.Stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return sandboxmcp.Result{Stdout: out.String(), Stderr: errs.String(), Status: sandboxmcp.StatusCompleted}
}

// TestProbesNoticeMissingWalls: without walls and limits no probe holds that needs no right of
// root.
func TestProbesNoticeMissingWalls(t *testing.T) {
	s, err := NewSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := map[string]Finding{}
	for _, p := range Programs() {
		if testing.Short() && slices.Contains([]string{"time", "daemon"}, p.Name) {
			continue // each takes seconds
		}
		res := bare(t.Context(), t, p.Request(s))
		for _, f := range p.Judge(s, res) {
			got[f.Name] = f
			t.Logf("%-16s held %-5v %s", f.Name, f.Held, f.Observed)
			if strings.Contains(f.Observed, "report") {
				t.Errorf("%s: got %q, want one report", f.Name, f.Observed)
			}
		}
	}
	want := []string{"host file", "host write", "host modes", "process", "trace", "host port", "host socket", "abstract socket", "memory", "disk space", "processes", "output"}
	if !testing.Short() {
		want = append(want, "time", "daemon")
	}
	if os.Geteuid() == 0 {
		want = append(want, "passwords", "root")
	}
	for _, name := range want {
		if f, there := got[name]; !there || f.Held {
			t.Errorf("%s: got %+v, want it not to hold", name, f)
		}
	}
	s.wait(t.Context(), 10*after) // the process that was left behind ends by itself
	if what := s.left(); what != "" {
		t.Error(what)
	}
}

// TestOnlyARefusalHolds: silence, other reports, and a report that the machine contradicts do
// not count.
func TestOnlyARefusalHolds(t *testing.T) {
	s, err := NewSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, out := Programs()[0], func(reports map[string]string) sandboxmcp.Result {
		var b strings.Builder
		for k, v := range reports {
			line, _ := json.Marshal(map[string]string{"probe": k, "report": v})
			b.Write(append(line, '\n'))
		}
		return sandboxmcp.Result{Stdout: b.String(), Status: sandboxmcp.StatusCompleted}
	}
	find := func(res sandboxmcp.Result, name string) Finding {
		all := first.Judge(s, res)
		return all[slices.IndexFunc(all, func(f Finding) bool { return f.Name == name })]
	}
	for _, c := range []struct {
		name, report string
		held         bool
	}{
		{"host file", "ENOENT", true},
		{"host file", "ENOENT EACCES", true},
		{"host file", "", false},
		{"host file", "ESTALE", false},
		{"host file", "ENOENT ESTALE", false},
		{"host file", "it read: canary", false},
		{"kernel calls", "EPERM ENOSYS", true},
		{"kernel calls", "EPERM EINVAL", false},
		{"host modes", "unchanged", true},
		{"host modes", "it changed the file", false},
		{"set-uid", "never again", true},
		{"set-uid", "EPERM", false},
	} {
		if f := find(out(map[string]string{c.name: c.report}), c.name); f.Held != c.held {
			t.Errorf("%s with %q: got %+v, want held %v", c.name, c.report, f, c.held)
		}
	}
	twice := sandboxmcp.Result{Stdout: `{"probe":"root","report":"it succeeded"}` + "\n" + `{"probe":"root","report":"EPERM"}` + "\n"}
	if f := find(twice, "root"); f.Held {
		t.Errorf("two reports: got %+v, want it not to hold", f)
	}
	for _, f := range first.Judge(s, sandboxmcp.Result{Status: sandboxmcp.StatusTimedOut}) {
		if f.Held {
			t.Errorf("a run without reports: got %+v", f)
		}
	}
	refused := out(map[string]string{"host write": "EACCES"})
	if f := find(refused, "host write"); !f.Held {
		t.Errorf("got %+v, want it to hold", f)
	}
	if err := os.WriteFile(filepath.Join(s.drop, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := find(refused, "host write"); f.Held {
		t.Errorf("with a file that was made: got %+v, want it not to hold", f)
	}
	quiet := out(map[string]string{"host modes": "unchanged"})
	if f := find(quiet, "host modes"); !f.Held {
		t.Errorf("got %+v, want it to hold", f)
	}
	if err := os.Chmod(s.canary, 0o646); err != nil {
		t.Fatal(err)
	}
	if f := find(quiet, "host modes"); f.Held {
		t.Errorf("with a mode that was changed: got %+v, want it not to hold", f)
	}
	s.mu.Lock()
	s.accepted["port"]++
	s.mu.Unlock()
	if f := find(out(map[string]string{"host port": "ECONNREFUSED"}), "host port"); f.Held {
		t.Errorf("with a connection that arrived: got %+v, want it not to hold", f)
	}
}

// TestRunStopsWithoutASandbox: if a file of the machine can be read, nothing else is tried.
func TestRunStopsWithoutASandbox(t *testing.T) {
	runs := 0
	findings, _, err := Run(t.Context(), func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		runs++
		return bare(ctx, t, req), nil
	}, func(int, int) {})
	if err != nil || runs != 1 || len(findings) == 0 || findings[0].Held {
		t.Errorf("got %d runs, %v, %v, want one run that does not hold", runs, findings, err)
	}
	broken := errors.New("no sandbox")
	if _, _, err = Run(t.Context(), func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		return sandboxmcp.Result{}, broken
	}, func(int, int) {}); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the run", err)
	}
}

// TestSiteIsRemoved with all that it has.
func TestSiteIsRemoved(t *testing.T) {
	s, err := NewSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the directory gone", err)
	}
}
