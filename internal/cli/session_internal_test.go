package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// fakeSessions is the part of a fake engine that has sessions.
type fakeSessions struct {
	mu   sync.Mutex // guards what follows
	have []sandboxmcp.Session
	spec sandboxmcp.SessionSpec
	up   sandboxmcp.Upload
	over sandboxmcp.Bridge
	gone string // what was removed or ended

	kind    string // of its vault; empty: sealed
	secrets []heldSecret
	rotated int

	id      string // of its server, once it listens
	dead    error  // what expired says
	spawned [][]string
	starts  func(args []string) (int, <-chan error, error)
}

func session(id sandboxmcp.SessionID) sandboxmcp.Session {
	return sandboxmcp.Session{ID: id, Namespace: "default", Language: sandboxmcp.Node, Status: sandboxmcp.SessionIdle, Limits: sandboxmcp.DefaultLimits()}
}

func having(ids ...sandboxmcp.SessionID) *fake {
	f := &fake{}
	for _, id := range ids {
		f.have = append(f.have, session(id))
	}
	return f
}

func (f *fakeSessions) find(c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c == (sandboxmcp.Caller{Namespace: "default", Actor: "cli"}) && slices.ContainsFunc(f.have, func(s sandboxmcp.Session) bool { return s.ID == id }) {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "no session %s", id)
}

func (f *fakeSessions) CreateSession(_ context.Context, _ sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spec = spec
	s := session(spec.ID)
	if spec.ID == "" {
		s.ID = "sess_new"
	}
	f.have = append(f.have, s)
	return s, nil
}

func (f *fakeSessions) TerminateSession(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	f.gone = string(id)
	return f.find(c, id)
}

func (f *fakeSessions) CloseSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	return f.TerminateSession(ctx, c, id)
}

func (f *fakeSessions) Sessions(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	if c.Namespace != sandboxmcp.EveryNamespace && c.Namespace != "default" {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.have), nil
}

func (f *fakeSessions) Upload(_ context.Context, c sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	f.up = u
	return u.SessionID, "/mnt/data/" + u.Name, f.find(c, u.SessionID)
}

func (f *fakeSessions) SessionFiles(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	return []sandboxmcp.SessionFile{{Path: "/mnt/data/a.txt", Filename: "a.txt", SizeBytes: 2}}, f.find(c, id)
}

func (f *fakeSessions) SessionEntries(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, deep bool) ([]sandboxmcp.SessionEntry, error) {
	all := []sandboxmcp.SessionEntry{{Path: "/mnt/data/a.txt", Type: sandboxmcp.EntryFile, SizeBytes: 2}, {Path: "/mnt/data/sub", Type: sandboxmcp.EntryDirectory}}
	if deep {
		all = append(all, sandboxmcp.SessionEntry{Path: "/mnt/data/sub/b.txt", Type: sandboxmcp.EntryFile, SizeBytes: 7})
	}
	return all, f.find(c, id)
}

func (f *fakeSessions) ReadFile(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, _ int64) (sandboxmcp.SessionFile, []byte, error) {
	return sandboxmcp.SessionFile{Path: path}, []byte("a\x00\xff\x1b"), f.find(c, id)
}

func (f *fakeSessions) OpenFile(context.Context, sandboxmcp.Caller, sandboxmcp.SessionID, string, int64) (sandboxmcp.SessionFile, io.ReadSeekCloser, error) {
	return sandboxmcp.SessionFile{}, nil, errors.ErrUnsupported // for the artifact server
}

func (f *fakeSessions) RemoveFile(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string) error {
	f.gone = path
	return f.find(c, id)
}

func (f *fakeSessions) Bridge(_ context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	f.over = b
	return sandboxmcp.Bridged{Bridged: true, Data: b.Data, Keys: []string{"k"}, Bytes: 2}, f.find(c, b.To)
}

func (f *fakeSessions) Inspect(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sandboxmcp.State{Namespace: c.Namespace, Sessions: f.have, VaultKeys: []string{"B", "A"}, Env: map[string]any{"asked": string(id)}}, nil
}

func (f *fakeSessions) expired(context.Context, *config.Config, sandboxmcp.Namespace, sandboxmcp.SessionID) error {
	return f.dead
}

func (f *fakeSessions) spawn(_ context.Context, args, _ []string, _ *os.File) (int, <-chan error, error) {
	f.spawned = append(f.spawned, args)
	if f.starts == nil {
		return 0, nil, errors.New("nothing can be started")
	}
	return f.starts(args)
}

// listen opens a control socket for the engine.
func (f *fake) listen(t *testing.T, state string, background bool) {
	t.Helper()
	c := api.Config{StateDir: state, Service: f, AuditInMemory: f.memory, Logger: slog.New(slog.DiscardHandler), Background: background}
	var s *api.Server
	if background {
		c.Stop = func() { go func() { _ = s.Drain(t.Context()) }() }
	}
	var err error
	s, err = api.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	f.id = s.Hello().ID
}

func parsed[T any](t *testing.T, text string) T {
	t.Helper()
	var doc T
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("got %v in %q, want JSON", err, text)
	}
	return doc
}

// TestOwner: a command about a session goes to the one server that has it.
func TestOwner(t *testing.T) {
	one, two, none := having("one", "both"), having("two", "both"), having()
	env := servers(t, one, two, none)
	dead := &fake{}
	dead.dead = sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "it was one")
	for _, c := range []struct {
		client *fake
		args   []string
		status int
		stderr string
		owner  *fake
	}{
		{&fake{}, []string{"one"}, 0, "", one},
		{&fake{}, []string{"two"}, 0, "", two},
		{&fake{}, []string{"both"}, 2, "invalid_argument: 2 servers have a session \"both\": ", nil},
		{&fake{}, []string{"both", "--server", one.id}, 0, "", one},
		{&fake{}, []string{"both", "--server", two.id}, 0, "", two},
		{&fake{}, []string{"both", "--server", "0-none"}, 2, "no running server has the id", nil},
		{&fake{}, []string{"one", "--server", none.id}, 5, "session_not_found", nil},
		{&fake{}, []string{"nobody"}, 5, "session_not_found", nil},
		{dead, []string{"nobody"}, 5, "session_expired", nil},
		{dead, []string{"one"}, 0, "", one},
		{&fake{}, []string{"a b"}, 2, "invalid_session_id", nil},
	} {
		got := c.client.cli(t.Context(), t, env, append([]string{"session", "show", "--json"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.stderr) {
			t.Errorf("%v: got %+v, want %d and %q", c.args, got, c.status, c.stderr)
		}
		if c.owner != nil {
			if doc := parsed[sandboxmcp.Session](t, got.stdout); string(doc.ID) != c.args[0] || doc.Owner != c.owner.id {
				t.Errorf("%v: got %+v, want that of %s", c.args, doc, c.owner.id)
			}
		}
		if c.status == 2 && c.args[0] == "both" && len(c.args) == 1 && (!strings.Contains(got.stderr, one.id) || !strings.Contains(got.stderr, two.id)) {
			t.Errorf("several: got %q, want the owners", got.stderr)
		}
	}
	got := (&fake{}).cli(t.Context(), t, append(env, "SANDBOXMCP_NAMESPACE=team"), "session", "show", "one")
	if got.status != 5 {
		t.Errorf("of another namespace: got %+v, want 5", got)
	}
}

func TestSessionList(t *testing.T) {
	one, two := having("one"), having("two")
	env := servers(t, one, two)
	got := (&fake{}).cli(t.Context(), t, env, "session", "list", "--json")
	doc := parsed[struct{ Sessions []sandboxmcp.Session }](t, got.stdout)
	if len(doc.Sessions) != 2 || !strings.Contains(got.stdout, `"session_id": "one"`) {
		t.Errorf("got %s, want both, with session_id", got.stdout)
	}
	got = (&fake{}).cli(t.Context(), t, env, "session", "list")
	for _, part := range []string{"SESSION", "one", "two", one.id, two.id} {
		if !strings.Contains(got.stdout, part) {
			t.Errorf("table: got %q, want %q in it", got.stdout, part)
		}
	}
	got = (&fake{}).cli(t.Context(), t, servers(t), "session", "list", "--json")
	if got.status != 0 || !strings.Contains(got.stdout, `"sessions": []`) {
		t.Errorf("without a server: got %+v, want 0 and none", got)
	}
}

func TestSessionKill(t *testing.T) {
	one := having("one")
	env := servers(t, one)
	got := (&fake{}).cli(t.Context(), t, env, "session", "kill", "--id", "one", "--json")
	if doc := parsed[map[string]any](t, got.stdout); got.status != 0 || doc["killed"] != "one" || doc["wiped"] != true || one.gone != "one" {
		t.Errorf("got %+v and %q, want 0 and one ended", got, one.gone)
	}
	if got = (&fake{}).cli(t.Context(), t, env, "session", "kill", "one"); got.stdout != "killed one\n" {
		t.Errorf("got %+v, want killed one", got)
	}
	for args, status := range map[string]int{"": 2, "one two": 2, "one --id one": 2, "nobody": 5, "--id nobody --json": 5, "a%b": 2} {
		if got = (&fake{}).cli(t.Context(), t, env, append([]string{"session", "kill"}, strings.Fields(args)...)...); got.status != status {
			t.Errorf("%q: got %+v, want %d", args, got, status)
		}
	}
	// One that expired is forgotten, and says once more what it was.
	dead := &fake{}
	dead.dead = sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "it was one")
	if got = dead.cli(t.Context(), t, env, "session", "kill", "old"); got.status != 5 || !strings.Contains(got.stderr, "session_expired") || dead.gone != "old" {
		t.Errorf("expired: got %+v, and %q forgotten, want 5, session_expired and old", got, dead.gone)
	}
}

// TestHome: something new is made in a server in the background, else in the
// only one, else one is started.
func TestHome(t *testing.T) {
	for _, c := range []struct {
		name    string
		agents  int
		behind  bool // one is in the background
		args    []string
		status  int
		started bool
		made    string // in which
	}{
		{name: "nobody", started: true, made: "started"},
		{name: "nobody may be started", args: []string{"--no-server"}, status: 9},
		{name: "one agent's", agents: 1, made: "agent"},
		{name: "one agent's, none may be started", agents: 1, args: []string{"--no-server"}, made: "agent"},
		{name: "two agents'", agents: 2, started: true, made: "started"},
		{name: "two agents', none may be started", agents: 2, args: []string{"--no-server"}, status: 9},
		{name: "one in the background", agents: 2, behind: true, made: "behind"},
	} {
		state := t.TempDir()
		all := map[string][]*fake{}
		for range c.agents {
			f := having()
			f.listen(t, state, false)
			all["agent"] = append(all["agent"], f)
		}
		if c.behind {
			f := having()
			f.listen(t, state, true)
			all["behind"] = append(all["behind"], f)
		}
		client := &fake{}
		client.starts = func([]string) (int, <-chan error, error) {
			f := having()
			f.listen(t, state, true)
			all["started"] = append(all["started"], f)
			return os.Getpid(), nil, nil
		}
		if c.agents == 2 && c.started { // all are one process here, and it is told by its pid
			client.starts = func([]string) (int, <-chan error, error) {
				f := having()
				f.listen(t, state, true)
				all["started"] = append(all["started"], f)
				for _, a := range all["agent"] {
					_ = os.Remove(filepath.Join(state, "run", a.id+".sock"))
				}
				return os.Getpid(), nil, nil
			}
		}
		got := client.cli(t.Context(), t, []string{"SANDBOXMCP_STATE_DIR=" + state}, append([]string{"session", "create", "--id", "new", "--ttl", "1.5", "--ram", "64", "-l", "shell"}, c.args...)...)
		if got.status != c.status || (len(client.spawned) > 0) != c.started {
			t.Errorf("%s: got %+v, started %v, want what the row says", c.name, got, client.spawned)
			continue
		}
		if c.status != 0 {
			if !strings.Contains(got.stderr, "backend_unavailable") || !strings.Contains(got.stderr, "--no-server") {
				t.Errorf("%s: got %q, want backend_unavailable and what to do", c.name, got.stderr)
			}
			continue
		}
		want := sandboxmcp.SessionSpec{
			ID: "new", Language: sandboxmcp.Shell, Limits: sandboxmcp.Limits{MaxRAMMB: 64}, Strict: true, TTL: 90 * time.Second,
		}
		if d := cmp.Diff(want, all[c.made][0].spec); d != "" || got.stdout != "new\n" {
			t.Errorf("%s: got %q and %s, want the session new as asked for", c.name, got.stdout, d)
		}
	}
}

// TestCreateTwice: a person does not get two sessions of one id.
func TestCreateTwice(t *testing.T) {
	one := having("one")
	env := servers(t, one, having())
	if got := (&fake{}).cli(t.Context(), t, env, "session", "create", "--id", "one"); got.status != 2 || !strings.Contains(got.stderr, one.id) {
		t.Errorf("got %+v, want 2 and the server that has it", got)
	}
}

// TestStartOnce: of several commands that find no server one starts it.
func TestStartOnce(t *testing.T) {
	state := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + state}
	var mu sync.Mutex
	starts := 0
	made := having()
	var wg sync.WaitGroup
	for range 4 {
		client := &fake{}
		client.starts = func([]string) (int, <-chan error, error) {
			mu.Lock()
			defer mu.Unlock()
			if starts++; starts == 1 {
				made.listen(t, state, true)
			}
			return os.Getpid(), nil, nil
		}
		wg.Go(func() {
			if got := client.cli(t.Context(), t, env, "session", "create"); got.status != 0 {
				t.Errorf("got %+v, want 0", got)
			}
		})
	}
	wg.Wait()
	if starts != 1 || len(made.have) != 4 {
		t.Errorf("got %d servers and %d sessions, want 1 and 4", starts, len(made.have))
	}
}

// TestMuteServer: while one server does not answer, no command says that a session does not
// exist: that server may have it.
func TestMuteServer(t *testing.T) {
	state := t.TempDir()
	f := having("one")
	f.listen(t, state, false)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(state, "run", "1-mute.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	env := []string{"SANDBOXMCP_STATE_DIR=" + state}
	for words, status := range map[string]int{
		"session show one": 0, "session show two": 9, "run --session two -c x": exitOurs, "session show two --server " + f.id: 5, "session list": 0,
	} {
		if got := (&fake{}).cli(t.Context(), t, env, strings.Fields(words)...); got.status != status || status != 0 && status != 5 && !strings.Contains(got.stderr, "1-mute") {
			t.Errorf("%s: got %+v, want %d", words, got, status)
		}
	}
	if f.got.SessionID != "" {
		t.Errorf("got a run in %q, want none", f.got.SessionID)
	}
}

func TestStartFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		starts func([]string) (int, <-chan error, error)
		stderr string
	}{
		{"not at all", nil, "nothing can be started"},
		{"ended at once", func([]string) (int, <-chan error, error) {
			end := make(chan error, 1)
			end <- errors.New("exit status 1")
			return os.Getpid(), end, nil
		}, "ended at once: it said nothing"},
	} {
		f := &fake{}
		f.starts = c.starts
		got := f.cli(t.Context(), t, servers(t), "session", "create", "--json")
		if got.status != 9 || !strings.Contains(got.stderr, c.stderr) || parsed[map[string]any](t, got.stdout)["error"] != "backend_unavailable" {
			t.Errorf("%s: got %+v, want 9, backend_unavailable and the reason", c.name, got)
		}
	}
}

// TestKeep: a server in the background stays while there is something to keep.
func TestKeep(t *testing.T) {
	state := t.TempDir()
	f := having("one")
	var out, errs bytes.Buffer
	a := f.call([]string{"SANDBOXMCP_STATE_DIR=" + state}, &out, &errs)
	f.idle = true
	ended := make(chan int, 1)
	go func() { ended <- a.main(t.Context(), []string{"sandboxmcp", app.BackgroundWord}) }()
	for { // until it is there
		if peers, _ := api.Peers(t.Context(), state); len(peers) == 1 && peers[0].Peer().Background {
			break
		}
		select {
		case status := <-ended:
			t.Fatalf("got its end with %d, want it to stay for its session: %s", status, errs.String())
		default:
		}
	}
	f.mu.Lock()
	f.have = nil
	f.mu.Unlock()
	if got := <-ended; got != 0 || !f.closed || f.opened.Actor != "cli" || !f.opened.Server {
		t.Errorf("got %d, closed %v as %q: %s, want 0, closed, as cli", got, f.closed, f.opened.Actor, errs.String())
	}
	if left, err := os.ReadDir(filepath.Join(state, "run")); err != nil || len(left) != 0 {
		t.Errorf("sockets left: got %v %v, want none", left, err)
	}
}

func TestFiles(t *testing.T) {
	f := having("one")
	env := servers(t, f)
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "pic.png"), filepath.Join(dir, "out")
	if err := os.WriteFile(src, []byte("\x89PNG"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) outcome {
		return (&fake{}).cli(t.Context(), t, env, append([]string{"files"}, args...)...)
	}
	if got := run("upload", "one", src); got.status != 0 || got.stdout != "/mnt/data/pic.png\n" {
		t.Errorf("upload: got %+v, want 0 and the path", got)
	}
	if got := run("upload", "one", src, "--name", "b", "--overwrite", "--json"); parsed[map[string]string](t, got.stdout)["path"] != "/mnt/data/b" {
		t.Errorf("upload: got %+v, want the path /mnt/data/b", got)
	}
	if d := cmp.Diff(sandboxmcp.Upload{SessionID: "one", Name: "b", Content: []byte("\x89PNG"), Overwrite: true}, f.up); d != "" {
		t.Error(d)
	}
	if got := run("upload", "one", filepath.Join(dir, "none")); got.status != 5 {
		t.Errorf("upload of no file: got %+v, want 5", got)
	}
	if got := (&fake{}).cli(t.Context(), t, append(env, "SANDBOX_MAX_UPLOAD_BYTES=3"), "files", "upload", "one", src); got.status != 8 {
		t.Errorf("upload of too much: got %+v, want 8", got)
	}
	if got := run("list", "one"); !strings.Contains(got.stdout, "/mnt/data/a.txt") {
		t.Errorf("list: got %+v, want a.txt", got)
	}
	if got := run("list", "one"); !strings.Contains(got.stdout, "/mnt/data/sub/ ") || strings.Contains(got.stdout, "b.txt") {
		t.Errorf("list: got %+v, want the directory and not what is in it", got)
	}
	if got := run("list", "one", "-R"); !strings.Contains(got.stdout, "/mnt/data/sub/b.txt  7      file") {
		t.Errorf("list -R: got %+v, want what is in the directory", got)
	}
	if got := parsed[struct{ Artifacts []sandboxmcp.SessionFile }](t, run("list", "one", "--json").stdout); len(got.Artifacts) != 1 {
		t.Errorf("list: got %+v, want one file", got)
	}
	if got := run("read", "one", "/x"); got.stdout != "a\x00\xff\x1b" {
		t.Errorf("read: got %q, want the bytes of the file", got.stdout)
	}
	if got := parsed[map[string]any](t, run("read", "one", "/x", "--json").stdout); got["content_base64"] != "YQD/Gw==" || got["path"] != "/x" {
		t.Errorf("read: got %v, want the bytes in base64 and the path", got)
	}
	if got := run("read", "one", "/x", "-o", dst); got.status != 0 || got.stdout != "" {
		t.Errorf("read into a file: got %+v, want 0 and nothing on stdout", got)
	}
	if data, _ := os.ReadFile(dst); string(data) != "a\x00\xff\x1b" {
		t.Errorf("file: got %q, want the bytes of the file", data)
	}
	if got := run("read", "one", "/x", "-o", filepath.Join(dst, "below")); got.status != 2 {
		t.Errorf("read into nowhere: got %+v, want 2", got)
	}
	if got := run("rm", "one", "/mnt/data/a.txt"); got.status != 0 || f.gone != "/mnt/data/a.txt" {
		t.Errorf("rm: got %+v, want 0 and a.txt removed", got)
	}
	for _, words := range []string{"upload nobody " + src, "list nobody", "read nobody /x", "rm nobody /x"} {
		if got := run(strings.Fields(words)...); got.status != 5 || !strings.Contains(got.stderr, "session_not_found") {
			t.Errorf("%s: got %+v, want session_not_found", words, got)
		}
	}
	var out, errs bytes.Buffer
	a := (&fake{}).call(append(env, "HOME="+dir), &out, &errs)
	a.terminal = true
	if a.main(t.Context(), []string{"sandboxmcp", "files", "read", "one", "/x"}); strings.ContainsAny(out.String(), "\x00\x1b") || out.Len() == 0 {
		t.Errorf("on a terminal: got %q, want text without control characters", out.String())
	}
}

func TestBridge(t *testing.T) {
	f := having("one")
	env := servers(t, f)
	got := (&fake{}).cli(t.Context(), t, env, "bridge", "one", "k", `{"v": 42}`)
	if doc := parsed[sandboxmcp.Bridged](t, got.stdout); !doc.Bridged || string(doc.Data["k"]) == "" {
		t.Errorf("got %+v, want it bridged", got)
	}
	if f.over.To != "one" || string(f.over.Data["k"]) != `{"v":42}` {
		t.Errorf("asked: got %+v, want the value for session one", f.over)
	}
	var out, errs bytes.Buffer
	a := (&fake{}).call(append(env, "HOME="+t.TempDir()), &out, &errs)
	a.Stdin = strings.NewReader(`"from stdin"`)
	if a.main(t.Context(), []string{"sandboxmcp", "bridge", "one", "k", "-"}); string(f.over.Data["k"]) != `"from stdin"` {
		t.Errorf("from stdin: got %s, want the value from stdin", f.over.Data["k"])
	}
	for value, status := range map[string]int{"{": 2, "": 2, "1 2": 2, "1": 0} {
		if got := (&fake{}).cli(t.Context(), t, env, "bridge", "one", "k", value); got.status != status {
			t.Errorf("%q: got %+v, want %d", value, got, status)
		}
	}
	if got := (&fake{}).cli(t.Context(), t, env, "bridge", "nobody", "k", "1"); got.status != 5 {
		t.Errorf("nobody: got %+v, want 5", got)
	}
}

func TestInspect(t *testing.T) {
	one, two := having("one"), having("two")
	env := servers(t, one, two)
	doc := parsed[sandboxmcp.State](t, (&fake{}).cli(t.Context(), t, env, "inspect").stdout)
	if len(doc.Sessions) != 2 || !slices.Equal(doc.VaultKeys, []string{"A", "B"}) {
		t.Errorf("of the namespace: got %+v, want both sessions and the keys A and B", doc)
	}
	doc = parsed[sandboxmcp.State](t, (&fake{}).cli(t.Context(), t, env, "inspect", "one").stdout)
	if doc.Env["asked"] != "one" || len(doc.Sessions) != 1 || doc.Sessions[0].Owner != one.id {
		t.Errorf("of a session: got %+v, want the one of its server", doc)
	}
	doc = parsed[sandboxmcp.State](t, (&fake{}).cli(t.Context(), t, env, "inspect", "--namespace", "team").stdout)
	if doc.Namespace != "team" {
		t.Errorf("of a namespace: got %+v, want team", doc)
	}
	for args, status := range map[string]int{"nobody": 5, "a%b": 2, "one two": 2, "--namespace a/b": 2} {
		if got := (&fake{}).cli(t.Context(), t, env, append([]string{"inspect"}, strings.Fields(args)...)...); got.status != status {
			t.Errorf("%q: got %+v, want %d", args, got, status)
		}
	}
	got := (&fake{}).cli(t.Context(), t, servers(t), "inspect", "default")
	for _, part := range []string{`"vault_keys": [`, `"B"`, `"sessions": []`, `"files": []`, `"allowed": []`, `"max_ram_mb": 512`} {
		if got.status != 0 || !strings.Contains(got.stdout, part) {
			t.Errorf("without a server: got %+v, want %s", got, part)
		}
	}
}
