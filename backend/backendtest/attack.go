package backendtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

//go:embed testdata/attack
var payloads embed.FS

// Payload returns a file of testdata/attack, for tests of a single backend.
func Payload(t testing.TB, name string) []byte {
	t.Helper()
	return payload(t, name)
}

func payload(t testing.TB, name string) []byte {
	t.Helper()
	b, err := payloads.ReadFile("testdata/attack/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// head holds the statements in the first lines of a payload.
type head struct {
	id, tries, beside, needs string
	goTest                   bool
	expect                   []expectation
	bare                     map[string]string // outcomes without any wall; only of harmless payloads
	mayBeEnded               []string          // conditions under which the sandbox may be ended because of the payload
}

// expectation is an outcome under conditions. If several apply, the last one counts.
type expectation struct {
	when       []string
	name, want string
}

func readHead(t testing.TB, program string) head {
	t.Helper()
	h := head{bare: map[string]string{}}
	if !strings.HasPrefix(program, "# id: ") && !strings.HasPrefix(program, "// id: ") {
		return h // a file that belongs to a payload
	}
	for line := range strings.SplitSeq(program, "\n") {
		rest, ok := strings.CutPrefix(line, "# ")
		if !ok {
			rest, ok = strings.CutPrefix(line, "// ")
		}
		if !ok {
			break
		}
		key, value, _ := strings.Cut(rest, ": ")
		word, name, _ := strings.Cut(key, " ")
		word, cond, _ := strings.Cut(strings.TrimSuffix(word, "]"), "[")
		var when []string
		if cond != "" {
			when = strings.Split(cond, ",")
		}
		switch word {
		case "id":
			h.id = value
		case "tries":
			h.tries = value
		case "beside":
			h.beside = value
		case "needs":
			h.needs = value
		case "kind":
			h.goTest = true
		case "expect":
			h.expect = append(h.expect, expectation{when, name, value})
		case "bare":
			h.bare[name] = value
		case "limit-ends":
			h.mayBeEnded = when
		default:
			t.Fatalf("unknown line in a payload's head: %q", line)
		}
	}
	return h
}

// holds reports whether all conditions are true.
func (s *suite) holds(when []string) bool {
	is := map[string]bool{
		"L1": !s.full(), "ns": s.full(), "root": os.Geteuid() == 0, "user": os.Geteuid() != 0,
		"held": s.o.HeldLimits, "weak": !s.o.HeldLimits, runtime.GOARCH: true, "net": s.net, "told": s.told && s.full(),
	}
	return !slices.ContainsFunc(when, func(c string) bool { return !is[c] })
}

// compare compares lines "name: outcome" with the expected outcomes.
func compare(t *testing.T, out string, want map[string]string, strict bool) {
	t.Helper()
	got := map[string]bool{}
	for line := range strings.Lines(out) {
		name, outcome, ok := strings.Cut(strings.TrimSpace(line), ": ")
		w, known := want[name]
		if !ok || !known {
			if strict {
				t.Errorf("unexpected line %q", line)
			}
			continue
		}
		got[name] = true
		if w != "*" && !slices.Contains(strings.Split(w, "|"), outcome) {
			t.Errorf("%s: got %s, want %s", name, outcome, w)
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("%s: no outcome", name)
		}
	}
}

// canary begins the names of canaries in a directory that every user may write to. Its name is not the product's: the acceptance
// kit, which may run beside, takes such a file for one that a server has left.
const canary = "/var/tmp/smcp-canary-"

// canaries returns files that the test made outside of every sandbox and that every user of the
// host may read.
func (s *suite) canaries() []string {
	list := []string{filepath.Join(s.dir, "canary")}
	if e, err := filepath.Glob(canary + filepath.Base(filepath.Dir(s.dir)) + "*"); err == nil {
		list = append(list, e...)
	}
	return list
}

// interlock checks that code in the sandbox cannot read a canary. No hostile code may run in a
// sandbox before. If the backend claims no walls, interlock skips the test.
func (s *suite) interlock(t *testing.T, x *box) {
	t.Helper()
	s.needWalls(t)
	for _, path := range s.canaries() {
		if _, err := os.Stat(path); err != nil {
			write(t, path, "canary "+rand.Text())
		}
		secret, err := os.ReadFile(path)
		if err != nil || len(secret) == 0 {
			t.Fatalf("interlock: the canary cannot be read outside either: %v", err)
		}
		// pass the name by stdin, so that no backend rewrites it
		e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", `IFS= read -r p; if cat "$p" 2>/dev/null; then echo open; else echo shut; fi; cat /etc/os-release >/dev/null 2>&1; echo alive`}, Stdin: []byte(path + "\n")})
		if e.Out != "shut\nalive\n" {
			t.Fatalf("interlock: a file of the host can be read: %q %q; no payload is run", e.Out, e.Err)
		}
	}
}

// attacks runs every payload in a sandbox of its own.
func (s *suite) attacks(t *testing.T) {
	s.needWalls(t)
	extra := canary + filepath.Base(filepath.Dir(s.dir)) + rand.Text()
	if f, err := os.OpenFile(extra, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
		_, _ = f.WriteString("canary")
		_ = f.Close()
		t.Cleanup(func() { _ = os.Remove(extra) })
	}
	t.Run("probes", s.probes)
	dir, err := payloads.ReadDir("testdata/attack")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range dir {
		program := payload(t, f.Name())
		h := readHead(t, string(program))
		if h.goTest || len(h.expect) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(f.Name(), filepath.Ext(f.Name())), func(t *testing.T) { s.attack(t, f.Name(), h) })
	}
}

// process returns the process of a payload.
func (s *suite) process(t *testing.T, x *box, name string) backend.Process {
	t.Helper()
	var p backend.Process
	switch filepath.Ext(name) {
	case ".py":
		p = x.python(t, name)
	case ".js":
		testkit.Need(t, "node", s.o.Node != "", "no interpreter that a sandbox can see")
		p = x.python(t, "attempt.py")
		p.Program = append(p.Program, backend.ProgramFile{Name: "main.js", Data: payload(t, name)})
		p.Argv = []string{s.o.Node, backend.ProgramDir + "/main.js"}
	default:
		p = x.python(t, "attempt.py")
		p.Program = append(p.Program, backend.ProgramFile{Name: "main.sh", Data: payload(t, name)})
		p.Argv = []string{"/bin/sh", backend.ProgramDir + "/main.sh"}
	}
	p.Env = x.environment(map[string]string{"MARKER": "neighbour-marker"})
	return p
}

func (s *suite) attack(t *testing.T, name string, h head) {
	if reason := s.o.Lacks[name]; reason != "" {
		t.Skip(reason)
	}
	if h.needs == "bash" {
		testkit.Need(t, "bash", s.o.Bash != "", "no bash that a sandbox can see")
	}
	if h.beside != "" {
		s.neighbour(t, h.beside)
	}
	x := s.open(t, func(p *backend.Spec) {
		p.Terminal = s.term
		if filepath.Ext(name) == ".js" {
			p.MemoryBytes = 1 << 30
		}
	})
	s.interlock(t, x)
	if s.net {
		x.network(t)
	}
	p := s.process(t, x, name)
	sockets := hostSockets(t, s)
	p.Program = append(p.Program, backend.ProgramFile{Name: "namespaces", Data: namespaces()}, backend.ProgramFile{Name: "socket", Data: []byte(strings.Join(sockets, "\n"))})
	e := x.run(t, p)
	want := map[string]string{}
	for _, w := range h.expect {
		if s.holds(w.when) {
			want[w.name] = w.want
			key := name + " " + w.name
			if slices.Contains(w.when, "net") {
				key += " net"
			}
			if other, ok := s.o.Differ[key]; ok {
				want[w.name] = other
			}
		}
	}
	if len(h.mayBeEnded) > 0 && s.holds(h.mayBeEnded) && e.Exit.Signal == 9 {
		t.Logf("%s: the sandbox was ended for it", h.id)
		return
	}
	compare(t, e.Out, want, true)
	if t.Failed() {
		t.Logf("%s tries %s\nexit %+v\nstdout %s\nstderr %s", h.id, h.tries, e.Exit, e.Out, e.Err)
	}
	s.bites(t, name, h, sockets)
}

// namespaces lists the namespaces of the test process, as lines "kind link".
func namespaces() []byte {
	var b bytes.Buffer
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if link, err := os.Readlink("/proc/self/ns/" + kind); err == nil {
			b.WriteString(kind + " " + link + "\n")
		}
	}
	return b.Bytes()
}

// neighbour opens another sandbox, in which a program tries to be found or to starve others.
func (s *suite) neighbour(t *testing.T, name string) {
	t.Helper()
	y := s.open(t)
	s.interlock(t, y)
	r, out, errs := y.start(t, s.process(t, y, name))
	over := make(chan struct{}) // closed at the program's end, which may come early if it exceeds a limit
	go func() {
		defer close(over)
		_, _ = r.Wait(t.Context())
	}()
	up := func() bool {
		select {
		case <-over:
			return true
		default:
			return strings.HasPrefix(out.String(), "up")
		}
	}
	if !soon(t, patience, up) {
		t.Fatalf("the neighbour does not come up: %q", errs.String())
	}
}

// hostSockets makes two sockets on the host, one with a path and one without.
func hostSockets(t *testing.T, s *suite) []string {
	t.Helper()
	path, abstract := filepath.Join(s.dir, "s"+rand.Text()[:6]), "sandboxmcp-host-"+rand.Text()
	for _, address := range []string{path, "@" + abstract} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	return []string{path, abstract}
}

// bites runs a payload without walls, as a child of the test, if its head states the outcome. A
// payload that fails there too proves nothing about the walls.
func (s *suite) bites(t *testing.T, name string, h head, sockets []string) {
	t.Helper()
	if len(h.bare) == 0 || filepath.Ext(name) != ".py" {
		return
	}
	dir := t.TempDir()
	for file, data := range map[string][]byte{"main.py": payload(t, name), "attempt.py": payload(t, "attempt.py"), "canary": []byte("none"), "socket": []byte(strings.Join(sockets, "\n"))} {
		write(t, filepath.Join(dir, file), string(data))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.o.Python, filepath.Join(dir, "main.py"))
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "BARE=" + strings.Join(slices.Collect(maps.Keys(h.bare)), ",")}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Logf("without walls: %v", err)
	}
	t.Logf("without walls: %s", strings.ReplaceAll(out.String(), "\n", "; "))
	compare(t, out.String(), h.bare, false)
}
