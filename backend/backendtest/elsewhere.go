package backendtest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Attack is a payload for tests that run it in their own way, such as in a session or a process
// that was started in advance.
type Attack struct {
	Name   string
	Main   string                // the file of Files to run, by python3 or sh
	Files  []backend.ProgramFile // must be in one directory
	Env    map[string]string     // environment of the payload
	Beside *Attack               // runs in another sandbox meanwhile, for a minute or until it is ended; it prints "up"

	want map[string]string
}

// Attacks returns the payloads sorted by name, except those for node and those that a Go test runs
// in several ways. It uses the tier and limits of the options, and the limits of the spec that
// payloads try to exceed.
func Attacks(t *testing.T, o Options, spec backend.Spec) []Attack {
	t.Helper()
	s := &suite{o: o, dir: outside(t), told: true}
	write(t, s.canaries()[0], "canary")
	shared := []backend.ProgramFile{
		{Name: "attempt.py", Data: payload(t, "attempt.py")},
		{Name: "canary", Data: []byte(strings.Join(s.canaries(), "\n"))},
		{Name: "namespaces", Data: namespaces()},
		{Name: "socket", Data: []byte(strings.Join(hostSockets(t, s), "\n"))},
	}
	env := map[string]string{
		"WORK": backend.WorkDir, "TMPDIR": backend.TempDir, "HOME": backend.TempDir, "PROGRAM": backend.ProgramDir,
		"PYTHONDONTWRITEBYTECODE": "1", "MARKER": "neighbour-marker",
		"MAXTASKS": fmt.Sprint(spec.MaxTasks), "WORKBYTES": fmt.Sprint(spec.WorkBytes), "WORKINODES": fmt.Sprint(spec.WorkInodes), "TEMPBYTES": fmt.Sprint(spec.TempBytes),
	}
	of := func(name string) Attack {
		main := "main" + filepath.Ext(name)
		return Attack{Name: name, Main: main, Env: env, Files: append(slices.Clone(shared), backend.ProgramFile{Name: main, Data: payload(t, name)})}
	}
	dir, err := payloads.ReadDir("testdata/attack")
	if err != nil {
		t.Fatal(err)
	}
	var all []Attack
	for _, f := range dir {
		h := readHead(t, string(payload(t, f.Name())))
		if h.goTest || len(h.expect) == 0 || filepath.Ext(f.Name()) == ".js" {
			continue
		}
		a := of(f.Name())
		if h.beside != "" {
			b := of(h.beside)
			a.Beside = &b
		}
		a.want = map[string]string{}
		for _, w := range h.expect {
			if s.holds(w.when) {
				a.want[w.name] = w.want
			}
		}
		all = append(all, a)
	}
	return all
}

// Check compares the output of a payload with what its head states. other maps names of attempts to
// further outcomes that are allowed where the payload runs.
func (a Attack) Check(t *testing.T, out string, other map[string]string) {
	t.Helper()
	want := map[string]string{}
	for name, w := range a.want {
		if o, ok := other[name]; ok && o == "*" {
			w = o
		} else if ok {
			w += "|" + o
		}
		want[name] = w
	}
	compare(t, out, want, true)
}
