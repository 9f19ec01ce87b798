package docker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestHoles: versions of runc older than the fixes of known escapes are named.
func TestHoles(t *testing.T) {
	for version, want := range map[string]bool{
		"1.1.5+ds1": true, "1.2.9": true, "1.3.5": true, "1.3.6": false, "1.4.2": true, "1.4.3": false, "1.5.0": false, "v1.5.1": false, "2.0.0": false, "unknown": true,
	} {
		if got := len(holes(version)) > 0; got != want {
			t.Errorf("%s: got %t, want %t", version, got, want)
		}
	}
}

// TestLongErrorsOfTheEngine: callers get the beginning and the end of what the engine says, and the log all of it.
func TestLongErrorsOfTheEngine(t *testing.T) {
	long := errors.New("begin " + strings.Repeat("ä", 30_000) + " end")
	var log strings.Builder
	got := newEngine(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}).failure("start a container", long)
	if m := got.Message; len(m) > 1200 || !strings.HasPrefix(m, "docker: start a container: begin ä") || !strings.HasSuffix(m, "ä end") || !utf8.ValidString(m) {
		t.Errorf("got %d bytes: %.80q, want the beginning and the end", len(m), m)
	}
	if !strings.Contains(log.String(), long.Error()) {
		t.Errorf("the log has %d bytes, want the whole error in it", log.Len())
	}
}

// TestProfileRefuses: the engine's profile allows the system calls of init. It allows none of the
// calls that the policy refuses with all arguments.
func TestProfileRefuses(t *testing.T) {
	text, err := profile()
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		DefaultAction string
		Syscalls      []struct {
			Names  []string
			Action string
		}
	}
	if err = json.Unmarshal([]byte(text), &p); err != nil || p.DefaultAction != "SCMP_ACT_ERRNO" || len(p.Syscalls) != 2 {
		t.Fatalf("got %s %v", text, err)
	}
	allowed := p.Syscalls[0].Names
	for _, name := range []string{"ptrace", "mount", "unshare", "setns", "bpf", "io_uring_setup", "clone3", "keyctl", "init_module", "inotify_init", "timerfd_create"} {
		if slices.Contains(allowed, name) {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, name := range []string{"execve", "openat", "read", "seccomp", "signalfd4", "landlock_restrict_self"} {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s is not allowed", name)
		}
	}
}

// TestParseInterpreters: only rows with an absolute path count, and each language has a row.
func TestParseInterpreters(t *testing.T) {
	rows := images{name: "x"}.runtimes(map[string]map[sandboxmcp.Language]backend.Interpreter{"x": {sandboxmcp.Python: {Path: "/usr/bin/python3.11", Version: "3.11.2"}, sandboxmcp.Shell: {Path: "/bin/dash"}}})
	if len(rows) != len(sandboxmcp.Languages()) {
		t.Fatalf("got %d rows, want %d", len(rows), len(sandboxmcp.Languages()))
	}
	for _, r := range rows {
		want := map[sandboxmcp.Language]string{sandboxmcp.Python: "/usr/bin/python3.11", sandboxmcp.Shell: "/bin/dash"}[r.Language]
		if r.Path != want || r.Available != (want != "") || (r.Hint == "") != r.Available {
			t.Errorf("%s: got %+v, want %q", r.Language, r, want)
		}
	}
}

// TestConnectionThatIsNotMadeInTime: no engine answers there. One that answers no call in time is another fault.
func TestConnectionThatIsNotMadeInTime(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it accepts nothing
	e := newEngine(Config{Host: "tcp://" + l.Addr().String()})
	for what, c := range map[string]struct {
		dial, call time.Duration
		code       sandboxmcp.Code
	}{
		"connection": {time.Nanosecond, time.Minute, sandboxmcp.CodeDockerUnavailable},
		"call":       {time.Minute, 20 * time.Millisecond, sandboxmcp.CodeDockerError},
	} {
		api, err := dockerapi.New(dockerapi.Config{Host: e.cfg.Host, DialLimit: c.dial})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), c.call)
		err = api.Ping(ctx)
		cancel()
		if got := e.failure("connect", err); got.Code != c.code || got.Hint == "" {
			t.Errorf("%s: got %v (%v), want %s", what, got, err, c.code)
		}
	}
}

// TestAddressThatCannotBeUsed: the error names the settings, not the log of an engine.
func TestAddressThatCannotBeUsed(t *testing.T) {
	for _, host := range []string{"ssh://host", "/run/docker.sock", "https://127.0.0.1:2376"} {
		_, _, err := newEngine(Config{Host: host}).connect(t.Context())
		if e := sandboxmcp.AsError(err); e == nil || e.Code != sandboxmcp.CodeDockerUnavailable || !strings.Contains(e.Message, host) || !strings.Contains(e.Hint, "docker_host") {
			t.Errorf("%s: got %v, want docker_unavailable with a hint on docker_host", host, err)
		}
	}
}

// opener refuses to open a sandbox.
type opener struct{}

var errOpener = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no sandbox is opened")

func (opener) Open(context.Context, backend.Spec) (backend.Sandbox, error) { return nil, errOpener }

// TestInterpretersFollowTheImages: after an engine has got other images, the interpreters are looked for again.
func TestInterpretersFollowTheImages(t *testing.T) {
	e := newEngine(Config{})
	e.api, e.examined, e.images = &dockerapi.Client{}, time.Now(), images{name: "a", ids: map[string]string{"a": "1"}}
	found := interpreters{rows: []sandboxmcp.Runtime{{Language: sandboxmcp.Languages()[0]}}, images: e.images}
	if rows, err := found.in(t.Context(), opener{}, e); err != nil || len(rows) != 1 {
		t.Errorf("the same images: got %v, %v, want the row that is known", rows, err)
	}
	e.images = images{name: "a", ids: map[string]string{"a": "2"}}
	if rows, err := found.in(t.Context(), opener{}, e); !errors.Is(err, errOpener) {
		t.Errorf("another image: got %v, %v, want it looked at", rows, err)
	}
}

// TestSilentEngine: if an engine does not answer, calls end when their context or the limit ends, and do not wait for each other.
func TestSilentEngine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	asked := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked <- c
		}
	}()
	e := newEngine(Config{Host: "tcp://" + l.Addr().String(), Logger: slog.New(slog.DiscardHandler)})
	first, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := e.connect(first)
		ended <- err
	}()
	defer func() { _ = (<-asked).Close() }()
	testkit.Until(t, "a call connects", func() bool { return len(e.connecting) == 1 })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err = e.connect(gone); sandboxmcp.CodeOf(err) != sandboxmcp.CodeDockerError {
		t.Errorf("a call whose caller has gone: got %v, want docker_error", err)
	}
	stop()
	if err = <-ended; sandboxmcp.CodeOf(err) != sandboxmcp.CodeDockerError {
		t.Errorf("the first call: got %v, want docker_error", err)
	}
	e.limit = time.Millisecond
	if _, _, err = e.connect(t.Context()); err == nil {
		t.Error("a call that waits for the engine: got no error")
	}
}

// TestEngineThatMapsUsers: a server of root refuses an engine that maps the user ids of containers to other ids.
func TestEngineThatMapsUsers(t *testing.T) {
	for option, refused := range map[string]bool{"name=userns": true, "name=rootless": true, "name=seccomp,profile=default": false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"SecurityOptions": []string{option}})
		}))
		api, err := dockerapi.New(dockerapi.Config{Host: "tcp://" + s.Listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		err = newEngine(Config{}).sameUsers(t.Context(), api)
		if got := sandboxmcp.CodeOf(err) == sandboxmcp.CodeIsolationUnavailable; err != nil != refused || got != refused {
			t.Errorf("%s: got %v, want refused: %t", option, err, refused)
		}
		s.Close()
	}
}

// TestAnEngineThatChangesIsAskedAgain: an engine that has started with another runc or other users is noticed within factAge,
// although it answers at the same address.
func TestAnEngineThatChangesIsAskedAgain(t *testing.T) {
	version, option := "1.5.0", "name=seccomp,profile=default"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{
			"Id": "sha256:1", "Architecture": "x86_64", "SecurityOptions": []string{option}, "Components": []map[string]string{{"Name": runc, "Version": version}},
		}
		if strings.HasSuffix(r.URL.Path, "/containers/json") {
			_ = json.NewEncoder(w).Encode([]any{})
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer s.Close()
	e := newEngine(Config{Host: "tcp://" + s.Listener.Addr().String(), Image: "image", Logger: slog.New(slog.DiscardHandler)})
	connect := func() error {
		_, _, err := e.connect(t.Context())
		return err
	}
	if err := connect(); err != nil || len(e.weak) != 0 {
		t.Fatalf("got %v and holes %v, want none", err, e.weak)
	}
	version = "1.3.5"
	e.examined = e.examined.Add(-factAge)
	if err := connect(); err != nil || len(e.weak) != 1 {
		t.Errorf("an older runc: got %v and holes %v, want one", err, e.weak)
	}
	option = "name=userns"
	e.examined = e.examined.Add(-factAge)
	if err := connect(); err != nil || !e.maps {
		t.Errorf("other users: got %v and that it maps them: %v, want that it does", err, e.maps)
	}
}
