package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

func TestHelloTellsWhichServerAnswers(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, api.Config{StateDir: dir, Service: &service{}, Background: true, AuditInMemory: true})
	c := peers(t, dir, 1)[0]
	if d := cmp.Diff(s.Hello(), c.Peer()); d != "" {
		t.Errorf("got another server (-want +got):\n%s", d)
	}
	h, err := c.Hello(t.Context())
	if d := cmp.Diff(s.Hello(), h); d != "" || err != nil {
		t.Errorf("got %v and another server (-want +got):\n%s", err, d)
	}
	if !h.Background || !h.AuditInMemory || h.PID != os.Getpid() || h.Protocol != api.Protocol {
		t.Errorf("got %+v, want a background server of process %d with its audit in memory, protocol %d", h, os.Getpid(), api.Protocol)
	}
}

func TestPeersAreListedOldestFirst(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for range 3 {
		s, _ := listen(t, dir)
		want = append(want, s.Hello().ID)
	}
	var got []string
	for _, c := range peers(t, dir, 3) {
		got = append(got, c.Peer().ID)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("got another order (-want +got):\n%s", d)
	}
}

func TestSocketIsPrivate(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	for file, want := range map[string]os.FileMode{"run": 0o700, filepath.Join("run", s.Hello().ID+".sock"): 0o600} {
		st, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != want {
			t.Errorf("%s: got mode %o, want %o", file, got, want)
		}
	}
}

func TestSharedDirectoryIsRefused(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"Group": 0o770, "Others": 0o707, "All": 0o777} {
		dir := t.TempDir()
		run := filepath.Join(dir, "run")
		if err := errors.Join(os.Mkdir(run, 0o700), os.Chmod(run, mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Listen(t.Context(), api.Config{StateDir: dir, Service: &service{}, Logger: quiet()}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: listen: got %v, want %v", name, err, os.ErrPermission)
		}
		if _, err := api.Peers(t.Context(), dir); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: peers: got %v, want %v", name, err, os.ErrPermission)
		}
	}
}

// TestLongPathIsServed: the path of a socket may be longer than the kernel takes.
func TestLongPathIsServed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120))
	listen(t, dir)
	peers(t, dir, 1)
}

// socket binds a socket that is no server, with a name that servers have.
func socket(t *testing.T, dir, id string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "run", id+".sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestDeadSocketIsRemoved(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	dead := socket(t, dir, "1-dead")
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	if ids, err := api.IDs(dir); err != nil || len(ids) != 2 {
		t.Errorf("got the ids %v and %v, want the living and the dead one", ids, err)
	}
	peers(t, dir, 1)
	if _, err := os.Lstat(filepath.Join(dir, "run", "1-dead.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dead socket: got %v, want %v", err, os.ErrNotExist)
	}
}

func TestCloseRemovesSocket(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	c := peers(t, dir, 1)[0]
	for _, which := range []string{"first", "second"} {
		if err := s.Close(); err != nil {
			t.Errorf("%s close: got %v, want success", which, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "run")); err != nil || len(left) != 0 {
		t.Errorf("left: got %v and %v, want nothing", left, err)
	}
	peers(t, dir, 0)
	if _, err := c.Stats(t.Context()); err == nil {
		t.Error("stats after close: got success, want a failure")
	}
}

func TestNoDirectoryHasNoServers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir(), file, filepath.Join(file, "below")} {
		peers(t, dir, 0)
	}
}

func TestFindGreetsTheServerOfAnID(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	ids, err := api.IDs(dir)
	if d := cmp.Diff([]string{s.Hello().ID}, ids); d != "" || err != nil {
		t.Fatalf("got %v and other ids (-want +got):\n%s", err, d)
	}
	c, err := api.Find(t.Context(), dir, ids[0])
	if err != nil || c.Peer() != s.Hello() {
		t.Errorf("got %v and %v, want %v", c, err, s.Hello())
	}
	if _, err = api.Find(t.Context(), dir, "1-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an id without a server: got %v, want %v", err, os.ErrNotExist)
	}
}

// TestMuteServerIsNamed: a server that closes each connection is named, and the
// others are returned beside it.
func TestMuteServerIsNamed(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	l := socket(t, dir, "1-mute")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	got, err := api.Peers(t.Context(), dir)
	if want := "server 1-mute does not answer"; len(got) != 1 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %d peers and %v, want one and %q", len(got), err, want)
	}
}

// TestHungServerIsNamed: a server that never answers is named when its time is up.
func TestHungServerIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen(t, dir)
	socket(t, dir, "1-hung") // the kernel takes its connections, and it never looks at them
	got, err := api.Peers(t.Context(), dir)
	if want := "server 1-hung does not answer"; len(got) != 1 || err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %d peers and %v, want one, %q and %v", len(got), err, want, context.DeadlineExceeded)
	}
}

// TestCallsOfAHungServerEnd: a server that greets and then hangs keeps no call.
func TestCallsOfAHungServerEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen(t, dir) // makes the directory
	hang := make(chan struct{})
	greets := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/hello" {
			_ = json.NewEncoder(w).Encode(api.Hello{Protocol: api.Protocol, ID: "1-hangs"})
			return
		}
		<-hang
	}
	other(t, dir, "1-hangs", greets)
	t.Cleanup(func() { close(hang) })
	c, err := api.Find(t.Context(), dir, "1-hangs")
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(context.Context) error{
		"Stats":  func(ctx context.Context) error { _, err := c.Stats(ctx); return err },
		"Cancel": func(ctx context.Context) error { return c.Cancel(ctx, owner(), "r") },
		"Follow": func(ctx context.Context) error { _, err := c.Follow(ctx, owner(), false); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := ask(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
}

// other serves something on a socket that looks like a server's.
func other(t *testing.T, dir, id string, serve http.HandlerFunc) {
	t.Helper()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: serve}
	l := socket(t, dir, id)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

func TestOtherVersionIsNamedByTheClient(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	other(t, dir, "1-later", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Hello{Protocol: 2, ID: "1-later"})
	})
	got, err := api.Peers(t.Context(), dir)
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), "server 1-later speaks version 2") || !strings.Contains(err.Error(), "this program version 1") {
		t.Errorf("got %d peers and %v, want one and the versions 2 and 1", len(got), err)
	}
}

func TestOtherVersionIsNamedByTheServer(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		conn := speak(t, dir, s.Hello().ID, method+" /v2/limits HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"HTTP/1.1 404 ", `"error":"not_found"`, "has version 1 of the API, but version 2 was requested", `"protocol":1`} {
			if !strings.Contains(string(answer), want) {
				t.Errorf("%s: got %s, want %q in it", method, answer, want)
			}
		}
	}
}

// proofOf returns the header by which a caller proves that it can read the state directory.
func proofOf(t *testing.T, dir, id string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run", id+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// speak opens a connection to a server and sends bytes of its own.
func speak(t *testing.T, dir, id, bytes string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "unix", filepath.Join(dir, "run", id+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	bytes = strings.Replace(bytes, "Host: x\r\n", "Host: x\r\nSandboxmcp-Proof: "+proofOf(t, dir, id)+"\r\n", 1)
	if _, err = io.WriteString(conn, bytes); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestUnknownAnswersAreNoCodes: what is no error body of this version has no code
// of it.
func TestUnknownAnswersAreNoCodes(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	body := make(chan string, 1)
	other(t, dir, "1-odd", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/hello" {
			_ = json.NewEncoder(w).Encode(api.Hello{Protocol: api.Protocol, ID: "1-odd"})
			return
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, <-body)
	})
	c, err := api.Find(t.Context(), dir, "1-odd")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"no JSON": "status 418 without a body",
		`{"error":"of_a_later_version","message":"m"}`: `unknown code "of_a_later_version"`,
		`{}`: `unknown code ""`,
	} {
		body <- text
		_, err := c.Stats(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, new(*sandboxmcp.Error)) {
			t.Errorf("%s: got %v, want %q and no code", text, err, want)
		}
	}
}
