package backendtest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Attack is a payload for tests that run it in a way of their own: in a session,
// or as what was started before anybody asked.
type Attack struct {
	Name   string
	Main   string                // the file of Files that is run, by python3 or by sh
	Files  []backend.ProgramFile // they are expected in one directory
	Env    map[string]string     // what they are told
	Beside *Attack               // what runs in another sandbox meanwhile, for a minute or until it is ended; it prints "up"

	want map[string]string
}

// Attacks are the payloads in the order of their names, but those of node and
// those that a Go test runs in several ways. Of the options those count that say
// what is reached, and of the spec the limits that the payloads try.
func Attacks(t *testing.T, o Options, spec backend.Spec) []Attack {
	t.Helper()
	s := &suite{o: o, dir: outside(t)}
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

// Check compares what a payload printed with what its head states. other are
// outcomes that its place has for a reason: for the name of an attempt, what is
// allowed beside.
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
