package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// sessions is a handler that knows the session "mine" of the default namespace,
// and notes what it was asked.
type sessions struct {
	mu   sync.Mutex // guards asked
	last any

	run func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error)
}

func (s *sessions) note(what any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = what
}

func (s *sessions) asked() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func have(ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error {
	if ns == "default" && id == "mine" {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "no session %s", id)
}

func mine() sandboxmcp.Session {
	return sandboxmcp.Session{
		ID: "mine", Language: sandboxmcp.Python, Status: sandboxmcp.SessionActive, CreatedAt: time.Unix(1, 0).UTC(), Namespace: "default",
		Limits: sandboxmcp.DefaultLimits(), Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2},
	}
}

func (s *sessions) Execute(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	return s.run(ctx, req)
}

func (s *sessions) Start(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	s.note(req)
	return sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusRunning}, nil
}

func (s *sessions) CreateSession(_ context.Context, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	s.note(spec)
	return mine(), nil
}

func (s *sessions) TerminateSession(_ context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, actor string) error {
	s.note(actor)
	return have(ns, id)
}

func (s *sessions) Sessions(_ context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Session, error) {
	if ns == "" || ns == "default" {
		return []sandboxmcp.Session{mine()}, nil
	}
	return nil, nil
}

func (s *sessions) Upload(_ context.Context, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	s.note(u)
	return u.SessionID, "/mnt/data/" + u.Name, have(u.Namespace, u.SessionID)
}

func (s *sessions) SessionFiles(_ context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	return []sandboxmcp.SessionFile{{Filename: "a"}}, have(ns, id)
}

func (s *sessions) ReadFile(_ context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	if limit == 1 {
		return sandboxmcp.SessionFile{}, nil, sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "too large").With("size_bytes", 2)
	}
	return sandboxmcp.SessionFile{Path: path}, []byte("\x00\xff"), have(ns, id)
}

func (s *sessions) RemoveFile(_ context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path, actor string) error {
	s.note(path + " by " + actor)
	return have(ns, id)
}

func (s *sessions) Bridge(_ context.Context, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	s.note(b)
	return sandboxmcp.Bridged{Bridged: true, Data: b.Data}, have(b.Namespace, b.To)
}

func (s *sessions) Inspect(_ context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	state := sandboxmcp.State{Namespace: ns, Sessions: []sandboxmcp.Session{mine()}}
	if id == "" {
		return state, nil
	}
	return state, have(ns, id)
}

func TestSessionCalls(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	ctx := t.Context()
	same := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	for _, ns := range []sandboxmcp.Namespace{"", "default"} {
		list, err := c.Sessions(ctx, ns)
		same("sessions", list, []sandboxmcp.Session{mine()}, err)
	}
	shown, err := c.Session(ctx, "default", "mine")
	same("session", shown, mine(), err)
	spec := sandboxmcp.SessionSpec{
		ID: "mine", Namespace: "default", Actor: api.Actor, Language: sandboxmcp.Node, Limits: sandboxmcp.Limits{MaxRAMMB: 64}, Strict: true,
		TTL: 90 * time.Second, Backend: "process", Fresh: true,
	}
	made, err := c.CreateSession(ctx, spec)
	same("create", made, mine(), err)
	same("create was asked", h.asked(), spec, nil)
	same("terminate", nil, nil, c.TerminateSession(ctx, "default", "mine"))
	same("terminate was asked by", h.asked(), api.Actor, nil)
	state, err := c.Inspect(ctx, "default", "")
	same("inspect", state.Sessions, []sandboxmcp.Session{mine()}, err)

	b := sandboxmcp.Bridge{Namespace: "default", Actor: api.Actor, To: "mine", From: "other", Keys: []string{"k"}, Data: map[string]json.RawMessage{"k": json.RawMessage(`{"v":9007199254740993}`)}}
	bridged, err := c.Bridge(ctx, b)
	same("bridge", bridged.Data, b.Data, err)
	same("bridge was asked", h.asked(), b, nil)

	u := sandboxmcp.Upload{Namespace: "default", SessionID: "mine", Actor: api.Actor, Name: "a b%\n", Content: []byte("\x00\xff"), Overwrite: true}
	id, path, err := c.Upload(ctx, u, bytes.NewReader([]byte("\x00\xff")), 2)
	same("upload", string(id)+path, "mine/mnt/data/a b%\n", err)
	same("upload was asked", h.asked(), u, nil)
	files, err := c.SessionFiles(ctx, "default", "mine")
	same("files", files, []sandboxmcp.SessionFile{{Filename: "a"}}, err)
	file, content, err := c.ReadFile(ctx, "default", "mine", "/mnt/data/ü&x", 100)
	same("read", file.Path+string(content), "/mnt/data/ü&x\x00\xff", err)
	same("remove", nil, nil, c.RemoveFile(ctx, "default", "mine", "/x"))
	same("remove was asked", h.asked(), "/x by cli", nil)
}

func TestSessionFailures(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	c := peers(t, dir, 1)[0]
	ctx := t.Context()
	for name, ask := range map[string]func(sandboxmcp.SessionID) error{
		"session":   func(id sandboxmcp.SessionID) error { _, err := c.Session(ctx, "default", id); return err },
		"terminate": func(id sandboxmcp.SessionID) error { return c.TerminateSession(ctx, "default", id) },
		"inspect":   func(id sandboxmcp.SessionID) error { _, err := c.Inspect(ctx, "default", id); return err },
		"files":     func(id sandboxmcp.SessionID) error { _, err := c.SessionFiles(ctx, "default", id); return err },
		"read":      func(id sandboxmcp.SessionID) error { _, _, err := c.ReadFile(ctx, "default", id, "/x", 9); return err },
		"remove":    func(id sandboxmcp.SessionID) error { return c.RemoveFile(ctx, "default", id, "/x") },
		"upload": func(id sandboxmcp.SessionID) error {
			_, _, err := c.Upload(ctx, sandboxmcp.Upload{Namespace: "default", SessionID: id, Name: "a"}, strings.NewReader(""), 0)
			return err
		},
	} {
		if err := ask("nobody"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
			t.Errorf("%s of nobody: got %v, want session_not_found", name, err)
		}
		if err := ask("a b"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidSessionID {
			t.Errorf("%s of a b: got %v, want invalid_session_id", name, err)
		}
	}
	var e *sandboxmcp.Error
	if _, _, err := c.ReadFile(ctx, "default", "mine", "/x", 1); !errors.As(err, &e) || e.Code != sandboxmcp.CodeArtifactTooLarge || e.Fields["size_bytes"] != 2.0 {
		t.Errorf("large file: got %#v, want artifact_too_large with its size", err)
	}
}

// TestUploadBound: a file may be as large as the server's setting says, and is
// refused before it is sent where its size is known.
func TestUploadBound(t *testing.T) {
	for name, c := range map[string]struct{ set, bound int64 }{"Default": {0, 50 << 20}, "Less": {1000, 1000}, "More": {60 << 20, 60 << 20}} {
		dir := t.TempDir()
		h := &handler{}
		s, err := api.Listen(t.Context(), api.Config{StateDir: dir, Handler: h, Logger: quiet(), MaxUpload: c.set})
		if err != nil {
			t.Fatal(err)
		}
		to, u := peers(t, dir, 1)[0], sandboxmcp.Upload{Namespace: "default", SessionID: "mine", Name: "a"}
		for _, told := range []bool{true, false} {
			for _, more := range []int64{0, 1} {
				size := int64(-1)
				if told {
					size = c.bound + more
				}
				in := &counted{r: io.LimitReader(zeros{}, c.bound+more)}
				_, _, err := to.Upload(t.Context(), u, in, size)
				switch {
				case more == 0 && (err != nil || in.n != c.bound):
					t.Errorf("%s: %d bytes: %v after %d", name, c.bound, err, in.n)
				case more == 1 && told && (sandboxmcp.CodeOf(err) != sandboxmcp.CodeUploadTooLarge || in.n != 0):
					t.Errorf("%s: one byte more: %v after %d bytes, want upload_too_large before any", name, err, in.n)
				case more == 1 && err == nil:
					t.Errorf("%s: one byte more, untold, was taken", name)
				}
			}
		}
		if got := int64(len(h.asked().(sandboxmcp.Upload).Content)); got != c.bound {
			t.Errorf("%s: the last that arrived has %d bytes, want %d", name, got, c.bound)
		}
		broken := errors.New("a bad disk")
		if _, _, err := to.Upload(t.Context(), u, iotest.ErrReader(broken), 5); !errors.Is(err, broken) {
			t.Errorf("%s: a file that cannot be read: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func TestExecute(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	req := sandboxmcp.Request{
		ID: "r", Namespace: "default", Actor: api.Actor, Code: "x\xff\x00", Language: sandboxmcp.Shell, FileName: "a.sh", Stdin: []byte("\xfe"), Env: map[string]string{"A": "\xff"},
		Limits: sandboxmcp.Limits{TimeoutSeconds: 1.5}, Strict: true, Backend: "process", Display: sandboxmcp.DisplayResults, SessionID: "mine",
		Session: &sandboxmcp.SessionSpec{Namespace: "default", Actor: api.Actor, Language: sandboxmcp.Shell},
	}
	// What the program writes is there while it runs: it waits for its reader.
	seen := make(chan struct{})
	h.run = func(_ context.Context, got sandboxmcp.Request) (sandboxmcp.Result, error) {
		stdout, stderr := got.Stdout, got.Stderr
		got.Stdout, got.Stderr = nil, nil
		if d := cmp.Diff(req, got); d != "" {
			t.Error(d)
		}
		_, _ = io.WriteString(stdout, "first")
		<-seen
		_, _ = io.WriteString(stderr, "err\xff")
		_, _ = io.WriteString(stdout, strings.Repeat("y", 1<<20))
		files := []sandboxmcp.Artifact{{Name: "a", SizeBytes: 1, ContentB64: []byte("a")}}
		return sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusFailed, ExitCode: 3, Artifacts: files, Metadata: map[string]any{"n": json.Number("9007199254740993")}}, nil
	}
	var stdout, stderr bytes.Buffer
	asked := req
	asked.Stdout, asked.Stderr = writer(func(p []byte) {
		if stdout.Len() == 0 {
			close(seen)
		}
		stdout.Write(p)
	}), &stderr
	res, err := c.Execute(t.Context(), asked)
	if err != nil || res.ExitCode != 3 || string(res.Artifacts[0].ContentB64) != "a" || res.Metadata["n"] != json.Number("9007199254740993") {
		t.Errorf("got %+v and %v", res, err)
	}
	if stdout.String() != "first"+strings.Repeat("y", 1<<20) || stderr.String() != "err\xff" {
		t.Errorf("streams: got %d bytes and %q", stdout.Len(), stderr.String())
	}
	started, err := c.Start(t.Context(), req)
	if err != nil || started.Status != sandboxmcp.StatusRunning {
		t.Errorf("start: got %+v %v", started, err)
	}
	if d := cmp.Diff(req, h.asked()); d != "" {
		t.Errorf("start: %s", d)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestExecuteFails(t *testing.T) {
	dir := t.TempDir()
	s, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	req := sandboxmcp.Request{Namespace: "default", Code: "x"}
	busy := sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "busy").With("place", "here")
	for _, before := range []string{"", "output"} {
		h.run = func(_ context.Context, got sandboxmcp.Request) (sandboxmcp.Result, error) {
			_, _ = io.WriteString(got.Stdout, before)
			return sandboxmcp.Result{}, busy
		}
		var e *sandboxmcp.Error
		if _, err := c.Execute(t.Context(), req); !errors.As(err, &e) || e.Code != sandboxmcp.CodeSessionBusy || e.Fields["place"] != "here" {
			t.Errorf("after %q: got %#v, want session_busy with its field", before, err)
		}
	}
	// Too much to be sent stands in the state directory.
	h.run = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		return sandboxmcp.Result{Artifacts: []sandboxmcp.Artifact{{Name: "a", SizeBytes: 32<<20 + 1, ContentB64: []byte("a")}}}, nil
	}
	if res, err := c.Execute(t.Context(), req); err != nil || api.Complete(res) {
		t.Errorf("large file: got %+v and %v, want it without its content", res, err)
	}
	// A server that goes away in the middle.
	h.run = func(ctx context.Context, got sandboxmcp.Request) (sandboxmcp.Result, error) {
		_, _ = io.WriteString(got.Stdout, "x")
		<-ctx.Done()
		return sandboxmcp.Result{}, ctx.Err()
	}
	req.Stdout = writer(func([]byte) { _ = s.Close() })
	if _, err := c.Execute(t.Context(), req); sandboxmcp.CodeOf(err) != sandboxmcp.CodeExecutionFailed {
		t.Errorf("server gone: got %v, want execution_failed", err)
	}
}

// TestHangUp: when the caller goes away, the run is cancelled.
func TestHangUp(t *testing.T) {
	for _, writes := range []bool{false, true} {
		dir := t.TempDir()
		_, h := listen(t, dir)
		c := peers(t, dir, 1)[0]
		running, ended := make(chan struct{}), make(chan struct{})
		h.run = func(ctx context.Context, got sandboxmcp.Request) (sandboxmcp.Result, error) {
			if writes {
				_, _ = io.WriteString(got.Stdout, "x")
			}
			close(running)
			<-ctx.Done()
			close(ended)
			return sandboxmcp.Result{}, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-running
			cancel()
		}()
		if _, err := c.Execute(ctx, sandboxmcp.Request{Namespace: "default", Code: "x"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
			t.Errorf("got %v, want cancelled", err)
		}
		<-ended
	}
}

// TestDrain: what is being answered comes to its end, and nobody gets in any more.
func TestDrain(t *testing.T) {
	dir := t.TempDir()
	s, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	drained := make(chan error, 1)
	h.run = func(ctx context.Context, got sandboxmcp.Request) (sandboxmcp.Result, error) {
		go func() { drained <- s.Drain(context.WithoutCancel(ctx)) }()
		for { // until nobody finds it any more
			if left, err := os.ReadDir(filepath.Join(dir, "run")); err != nil || len(left) == 0 {
				break
			}
			_, _ = io.WriteString(got.Stdout, ".")
		}
		return sandboxmcp.Result{ExitCode: 7}, nil
	}
	res, err := c.Execute(t.Context(), sandboxmcp.Request{Namespace: "default", Code: "x"})
	if err != nil || res.ExitCode != 7 {
		t.Errorf("got %+v and %v, want the answer", res, err)
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: got %v", err)
	}
	peers(t, dir, 0)
}
