package engine_test

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// writerFunc is a writer that calls a function for each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// attempts are programs that try to leave a sandbox, and what is told of each: host and port. A
// program prints "absent" if the machine lacks what it needs.
var attempts = map[string]struct {
	lang sandboxmcp.Language
	code string
	host string
	port int
}{
	"urllib":   {"python", "import urllib.request\nurllib.request.urlopen('http://a.site.test/')", "a.site.test", 80},
	"https":    {"python", "import urllib.request\nurllib.request.urlopen('https://a.site.test/')", "a.site.test", 443},
	"requests": {"python", "try: from pip._vendor import requests\nexcept ImportError: print('absent')\nelse: requests.get('https://a.site.test/')", "a.site.test", 443},
	"lookup":   {"python", "import socket\nsocket.getaddrinfo('a.site.test', 80)", "a.site.test", 0},
	"raw":      {"python", "import socket\nsocket.create_connection(('192.0.2.7', 5432), 10)", "192.0.2.7", 5432},
	"reads":    {"python", "import socket\nc = socket.create_connection(('192.0.2.7', 443), 10)\nassert not c.recv(9) or 1/0", "192.0.2.7", 443},
	"UDP":      {"python", "import socket\nu = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nu.connect(('192.0.2.7', 123))\nu.send(b'x')\nu.settimeout(10)\nu.recv(9)", "192.0.2.7", 123},
	"child":    {"python", "import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-c', 'import socket; socket.create_connection((\"192.0.2.7\", 25), 10)'], check=True)", "192.0.2.7", 25},
	"thread":   {"python", "import socket, threading\nt = threading.Thread(target=lambda: socket.create_connection(('192.0.2.7', 25), 10))\nt.start()\nt.join()\n1/0", "192.0.2.7", 25},
	"http":     {"node", "require('http').get('http://a.site.test/')", "a.site.test", 0},
	"fetch":    {"node", "await fetch('https://a.site.test/')", "a.site.test", 0},
	"dns":      {"node", "require('dns').resolve4('a.site.test', e => { throw e })", "a.site.test", 0},
	"net":      {"node", "require('net').connect(5432, '192.0.2.7')", "192.0.2.7", 5432},
	"npm":      {"node", "try { require('child_process').execSync('npm view left-pad', { stdio: 'inherit', env: { ...process.env, npm_config_registry: 'https://a.site.test/' } }) } catch (e) { if (e.status === 127) console.log('absent'); process.exitCode = 1 }", "a.site.test", 443},
	"curl":     {"shell", "command -v curl >/dev/null || { echo absent; exit; }; curl -sS https://a.site.test/", "a.site.test", 443},
	"pip":      {"shell", "python3 -m pip --version >/dev/null 2>&1 || { echo absent; exit; }; python3 -m pip install --retries 0 --target /tmp/p --index-url https://a.site.test/ nothing", "a.site.test", 443},
	"dev/tcp":  {"shell", "echo > /dev/tcp/192.0.2.7/22", "192.0.2.7", 22},
}

// told fails unless the result tells the attempt, with a reason, a note, and the wall.
func told(t *testing.T, res sandboxmcp.Result, host string, port int) {
	t.Helper()
	if strings.Contains(res.Stdout, "absent") {
		t.Log("the machine lacks the program")
		return
	}
	at := slices.IndexFunc(res.Network.Denied, func(d sandboxmcp.DeniedRequest) bool { return d.Host == host && d.Port == port })
	if at < 0 {
		t.Errorf("denied: got %+v, want %s:%d; stdout %q, stderr %q", res.Network.Denied, host, port, res.Stdout, res.Stderr)
		return
	}
	if d := res.Network.Denied[at]; d.Reason == "" || d.Times < 1 {
		t.Errorf("got %+v, want a reason and how often", d)
	}
	if !strings.Contains(res.Note, "No connection") {
		t.Errorf("note: got %q, want that there was no connection", res.Note)
	}
	if res.Status == sandboxmcp.StatusTimedOut || res.DurationMS > 15000 {
		t.Errorf("got %s after %v ms, want a refusal at once", res.Status, res.DurationMS)
	}
	if w := res.Isolation.Walls; !slices.Contains(w, sandboxmcp.WallTold) || slices.Contains(w, sandboxmcp.WallNoNetwork) || slices.Contains(w, sandboxmcp.WallEgress) {
		t.Errorf("walls: got %q, want %q and no other of the network", w, sandboxmcp.WallTold)
	}
}

// With nothing open, every program that tries to leave its sandbox is refused at once, and the
// result tells host and port: in new, ready and forked interpreters, in sessions and in the
// background.
func TestRealAttemptsAreTold(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	for name, a := range attempts {
		req := sandboxmcp.Request{Language: a.lang, Code: a.code}
		t.Run(name, func(t *testing.T) {
			told(t, execute(t, e, req), a.host, a.port)
		})
	}
	for _, name := range []string{"https", "raw", "lookup", "child", "fetch", "net", "curl", "dev/tcp"} { // interpreters wait by now
		a := attempts[name]
		t.Run("session/"+name, func(t *testing.T) {
			id := sandboxmcp.SessionID("told-" + strings.ReplaceAll(name, "/", "-"))
			defer func() { _ = e.TerminateSession(t.Context(), sandboxmcp.Caller{}, id) }()
			quiet := map[sandboxmcp.Language]string{"python": "x = 1", "node": "var x = 1", "shell": "x=1"}[a.lang]
			if res := execute(t, e, sandboxmcp.Request{Language: a.lang, Code: quiet, SessionID: id}); len(res.Network.Denied) > 0 || !slices.Contains(res.Isolation.Walls, sandboxmcp.WallNoNetwork) {
				t.Errorf("before: got %+v, %q; want nothing denied, and no sockets", res.Network, res.Isolation.Walls)
			}
			told(t, execute(t, e, sandboxmcp.Request{Language: a.lang, Code: a.code, SessionID: id}), a.host, a.port)
			if res := execute(t, e, sandboxmcp.Request{Language: a.lang, Code: quiet, SessionID: id}); len(res.Network.Denied) > 0 {
				t.Errorf("the next run: got %+v, want nothing denied", res.Network.Denied)
			}
		})
	}
	t.Run("background", func(t *testing.T) {
		a := attempts["raw"]
		job, err := e.Start(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Language: a.lang, Code: a.code})
		if err != nil {
			t.Fatal(err)
		}
		res, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: job.RequestID, Wait: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		told(t, res, a.host, a.port)
	})
}

// A program that tries nothing is told nothing, also if it uses its own loopback. Its network
// namespace has no sockets of the server, and is used again.
func TestRealQuietRunsAreUntouched(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	for range 4 { // executed, then forked
		res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "print(1)"})
		if len(res.Network.Denied) > 0 || !slices.Contains(res.Isolation.Walls, sandboxmcp.WallNoNetwork) {
			t.Errorf("got %+v, %q; want nothing denied behind the wall of no network", res.Network, res.Isolation.Walls)
		}
	}
	own := "import socket, threading\na = socket.socket()\na.bind(('0.0.0.0', 8000))\na.listen()\n\ndef serve():\n    c = a.accept()[0]\n    c.recv(999)\n    c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nown')\n    c.close()\nthreading.Thread(target=serve, daemon=True).start()\n" +
		"import urllib.request\nprint(urllib.request.urlopen('http://0.0.0.0:8000/', timeout=9).read())\n" +
		"try: socket.create_connection(('127.0.0.1', 80), 9).recv(1)\nexcept ConnectionError: print('closed')"
	if res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: own}); res.Stdout != "b'own'\nclosed\n" || len(res.Network.Denied) > 0 {
		t.Errorf("its own server: got %q %q, %+v; want an answer and nothing denied", res.Stdout, res.Stderr, res.Network.Denied)
	}
}

// A domain that a person opens while a run goes on is open for its next connection, although nothing
// was open when the run began. The result says since when, and that the wall was opened.
func TestRealGrantDuringARun(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.Detours = site(t) })
	needs(t, e, sandboxmcp.Python)
	const tries = "import time, urllib.request\n%s\nfor i in range(200):\n    try: print('GOT', urllib.request.urlopen('http://api.site.test/', timeout=9).read().decode()); break\n    except OSError as e: print('NOT', e, flush=True)\n    time.sleep(.05)\n"
	for name, before := range map[string]string{"Proxy": "", "Direct": "import os\nfor k in list(os.environ):\n    if 'proxy' in k: del os.environ[k]"} {
		refused := make(chan struct{})
		out := writerFunc(sync.OnceFunc(func() { close(refused) }))
		done := make(chan sandboxmcp.Result, 1)
		go func() {
			res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Language: sandboxmcp.Python, Code: strings.Replace(tries, "%s", before, 1), Stdout: out})
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		<-refused
		at := time.Now()
		if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}); err != nil {
			t.Fatal(err)
		}
		res := <-done
		if !strings.HasPrefix(res.Stdout, "NOT ") || !strings.HasSuffix(res.Stdout, "GOT hello from api.site.test\n") {
			t.Errorf("%s: got %q, want it refused and then opened", name, res.Stdout)
		}
		if !slices.Contains(res.Isolation.Walls, sandboxmcp.WallEgress) || slices.Contains(res.Isolation.Walls, sandboxmcp.WallTold) || slices.Contains(res.Isolation.Walls, sandboxmcp.WallNoNetwork) {
			t.Errorf("%s: walls: got %q, want the open one", name, res.Isolation.Walls)
		}
		if o, _ := res.Metadata["network_opened"].([]gateway.Opened); len(o) != 1 || o[0].Domain != "api.site.test" || o[0].At.Before(at.Add(-time.Second)) {
			t.Errorf("%s: opened: got %+v, want api.site.test since %v", name, o, at)
		}
		if _, err := e.RevokeEgress(t.Context(), sandboxmcp.Caller{}, "api.site.test"); err != nil {
			t.Fatal(err)
		}
	}
}

// What a session's processes try between runs is on record, also if nothing was ever open.
func TestRealAttemptBetweenRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := openReal(t, at(dir))
	needs(t, e, sandboxmcp.Shell)
	run := func(code string) sandboxmcp.Result {
		return execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Shell, Code: code, SessionID: "s"})
	}
	events, stop := e.Subscribe(everyone())
	defer stop()
	run("(while [ ! -e go ]; do sleep .05; done; echo > /dev/tcp/192.0.2.7/22; touch tried) >/dev/null 2>&1 &")
	if _, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: "s", Name: "go", Content: []byte{}}); err != nil {
		t.Fatal(err)
	}
	if res := run("for i in $(seq 200); do [ -e tried ] && break; sleep .05; done; ls tried"); res.Stdout != "tried\n" {
		t.Fatalf("got %q %q, want that it tried", res.Stdout, res.Stderr)
	}
	found := false
	for _, r := range rows(t, dir, "default") {
		found = found || r.Action == "egress_denied" && r.Metadata["host"] == "192.0.2.7"
	}
	if !found {
		t.Error("the record: got no egress_denied of 192.0.2.7, want one")
	}
	if !testkit.Within(t, time.Minute, func() bool {
		select {
		case ev := <-events:
			return ev.Type == sandboxmcp.EventEgressDenied && ev.Data["host"] == "192.0.2.7" && ev.Data["session_id"] == sandboxmcp.SessionID("s")
		default:
			return false
		}
	}) {
		t.Error("events: got no egress.denied of 192.0.2.7, want one")
	}
}

// Attempts are told in every run of a session of single runs, however many there are: each run is a
// process of its own with a listener of its own. So are those of sessions that never have a network.
func TestRealAttemptsOfManySingleRuns(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	for i := range 24 {
		res := execute(t, e, sandboxmcp.Request{
			Language: sandboxmcp.Python, Code: attempts["raw"].code, SessionID: "fresh", Session: &sandboxmcp.SessionSpec{Fresh: true, Offline: true},
		})
		told(t, res, "192.0.2.7", 5432)
		if d := res.Network.Denied; len(d) != 1 || d[0].Times != 1 || d[0].Reason != "this run has no network" {
			t.Fatalf("run %d: got %+v, want one attempt, for the reason that the session has no network", i, d)
		}
	}
}
