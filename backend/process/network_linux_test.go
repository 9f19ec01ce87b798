package process_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// answer says to every connection which address it asked for.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(c.LocalAddr().String()))
		_ = c.Close()
	}
}

// TestNetworkOfEveryStart: the network of a running program can be opened however the program
// was started, in sandboxes of sessions as in others.
func TestNetworkOfEveryStart(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	started := func(program string) (backend.Process, *bytes.Buffer) {
		p, out := forkable(program)
		p.Prestart = nil
		return p, out
	}
	for name, c := range map[string]struct {
		prepare func(*testing.T, backend.Backend, backend.Spec)
		program func(string) (backend.Process, *bytes.Buffer)
		change  []func(*process.Config)
		stays   bool
		how     string // whether it waited, and its number, which tells a fork
	}{
		"Fresh":      {program: started, change: []func(*process.Config){func(c *process.Config) { c.NoPool = true }}},
		"Ready":      {prepare: func(t *testing.T, b backend.Backend, sp backend.Spec) { t.Helper(); readied(t, b, sp) }, program: started},
		"Stays":      {program: started, stays: true},
		"Forked":     {prepare: hatched, program: forkable, how: "False 3"},
		"Ahead":      {prepare: expectant, program: aheadable, how: "True 2"},
		"NoCgroup":   {program: started, change: []func(*process.Config){process.WithoutCgroup}},
		"ForkAgain":  {prepare: hatched, program: forkable, change: []func(*process.Config){process.ForkAgain}, how: "False 3"},
		"ForkStayed": {prepare: hatched, program: forkable, stays: true, how: "False 3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(c.change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			sp := spec("net")
			sp.Stays = c.stays
			if c.prepare != nil {
				c.prepare(t, b, sp)
			}
			sb, err := b.Open(t.Context(), sp)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			p, _ := c.program(testkit.Hostile(t, "connects-outward.py"))
			out := &lines{}
			p.Stdout, p.Stderr = out, out
			r, err := sb.Start(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			out.wait(t, 2)
			n, err := sb.(backend.Networker).Network(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			go answer(n.TCP[80])
			if err := sb.Files().Put(t.Context(), "go", nil, true); err != nil {
				t.Fatal(err)
			}
			out.wait(t, 3)
			how := "False 2"
			if c.how != "" {
				how = c.how
			}
			if got, want := out.String(), "waited "+how+"\nENETUNREACH\n1.2.3.4:80\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			iso, err := sb.Isolation(t.Context())
			if err != nil || !strings.Contains(strings.Join(iso.Walls, ";"), "no network but egress") {
				t.Errorf("walls: got %q, %v; want the egress wall", iso.Walls, err)
			}
			again, out2 := c.program("print('again')") // also beside what is open, and judged anew
			r, err = sb.Start(t.Context(), again)
			if err != nil {
				t.Fatal(err)
			}
			e, err := r.Wait(t.Context())
			if err = errors.Join(err, sb.Kill(t.Context())); err != nil {
				t.Error(err)
			}
			_ = r.Drain(t.Context())
			if e != (backend.Exit{}) || out2.String() != "again\n" {
				t.Errorf("a second program: got %+v and %q, want again", e, out2)
			}
		})
	}
}

// lines is what a program printed.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wait waits until there are n lines.
func (l *lines) wait(t *testing.T, n int) {
	t.Helper()
	if !testkit.Within(t, 20*time.Second, func() bool { return strings.Count(l.String(), "\n") >= n }) {
		t.Fatalf("the program printed %q within 20 s, want %d lines", l.String(), n)
	}
}

// TestNetworkIsNobodyElses: the network namespace of a sandbox that had a network is never
// used again. That of a sandbox without one is.
func TestNetworkIsNobodyElses(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("kept")
	for i, want := range []int{1, 0, 1, 0} {
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		if want == 0 {
			ports := []int{}
			if i == 3 { // one that fails counts, too
				ports = []int{7000}
			}
			if _, err := sb.(backend.Networker).Network(t.Context(), ports); err != nil {
				t.Fatal(err)
			}
		}
		_ = b.(backend.Pooler).Trim(t.Context()) // sandboxes that were made ahead have namespaces, too
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := pool(b)["network_namespaces"]; got != want {
			t.Errorf("sandbox %d: %d network namespaces are kept, want %d", i, got, want)
		}
	}
}

// TestNetworkClosesWithADeadInit: a sandbox whose init ends by itself, as in want
// of memory, has no listeners either.
func TestNetworkClosesWithADeadInit(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("dies"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	n, err := sb.(backend.Networker).Network(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for _, l := range []net.Listener{n.Proxy, n.TCP[443]} {
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
	}
	if err := process.EndInit(sb); err != nil {
		t.Fatal(err)
	}
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("Accept after the end: got a connection, want an error")
			}
		case <-limit.C:
			t.Fatal("Accept after the end: got no answer in time, want an error")
		}
	}
}

// TestCertificates: programs get the path of a file of authorities that they can read. A file
// that holds a key is never shown.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	block := func(kind string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("not really one")}))
	}
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := block("CERTIFICATE")
	for name, c := range map[string]struct {
		setting string
		want    string // the text that is shown; empty: the system's
	}{
		"System": {},
		"Own":    {file("own.pem", good, 0o644), good},
		"Key":    {file("key.pem", good+block("EC PRIVATE KEY"), 0o644), ""},
		"None":   {filepath.Join(dir, "none.pem"), ""},
		"Text":   {file("text", "hello", 0o644), ""},
		"Named":  {"own.pem", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(func(cfg *process.Config) { cfg.CertFile = c.setting })(t)
			defer func() { _ = b.Close(t.Context()) }()
			sb, err := b.Open(t.Context(), spec("certs"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			n, err := sb.(backend.Networker).Network(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			const script = `cat "$SSL_CERT_FILE"; [ -e /etc/ssl/private ] && echo private; [ -w "$SSL_CERT_FILE" ] && echo writable; true`
			r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", script}, Env: append(n.Environ(), "PATH=/usr/bin:/bin"), Stdout: &out, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := sb.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = r.Drain(t.Context())
			want := c.want
			if want == "" {
				system, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
				if err != nil {
					t.Skip("the system has no authorities there")
				}
				want = string(system)
			}
			if out.String() != want {
				t.Errorf("a program sees %.100q (%d bytes), want %.100q (%d)", out.String(), out.Len(), want, len(want))
			}
		})
	}
}

// TestForksLeaveTheirNetworkNamespace: the network namespace of a fork is used again if the fork
// made no network socket. Init is told of such sockets of forks, too.
func TestForksLeaveTheirNetworkNamespace(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("fork")
	hatched(t, b, sp)
	for program, want := range map[string]int{"import socket\nsocket.socketpair()": 1, "import socket\nsocket.socket().close()": 0} {
		_ = b.(backend.Pooler).Trim(t.Context())
		hatched(t, b, sp)
		forks := b.(*process.Backend).Forks()
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := forkable(program)
		r, err := sb.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.(*process.Backend).Forks(); got < forks {
			t.Errorf("got %d forks, want at least %d", got, forks)
		}
		_ = b.(backend.Pooler).Trim(t.Context()) // ends the sandboxes that were made ahead, too
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := pool(b)["network_namespaces"]; got != want {
			t.Errorf("%q: %d network namespaces are kept, want %d", program, got, want)
		}
	}
}
