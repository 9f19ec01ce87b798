package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

type handler struct {
	sessions
	guard
	doorkeeper
	secrets
	cancelled []sandboxmcp.RequestID
}

func (*handler) Stats() sandboxmcp.Stats {
	return sandboxmcp.Stats{
		Queue:      sandboxmcp.QueueStats{MaxConcurrent: 4, Active: 1, Queued: 2, TotalProcessed: 3},
		Executions: map[sandboxmcp.Status]int64{sandboxmcp.StatusCompleted: 3},
	}
}

func (*handler) Lookup(_ context.Context, q sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	r := sandboxmcp.Result{RequestID: q.RequestID, Namespace: q.Namespace, Metadata: map[string]any{}, Artifacts: []sandboxmcp.Artifact{}}
	file := sandboxmcp.Artifact{Name: "a.txt", SizeBytes: 2}
	switch {
	case q.Namespace != "default":
		return r, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", q.RequestID)
	case q.RequestID == "running":
		r.Status = sandboxmcp.StatusRunning
		return r, nil
	case q.RequestID == "large":
		file.SizeBytes = 32<<20 + 1
	case q.RequestID != "ended":
		return r, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", q.RequestID)
	}
	if q.Content {
		file.ContentB64 = []byte("hi")
	}
	r.Status, r.Metadata["n"], r.Artifacts = sandboxmcp.StatusCompleted, json.Number("9007199254740993"), append(r.Artifacts, file)
	return r, nil
}

func (h *handler) Cancel(_ context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
	switch {
	case id == "fault":
		return errors.New("a secret cause")
	case ns != "default" || id != "known":
		return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", id).With("place", "here")
	}
	h.cancelled = append(h.cancelled, id)
	return nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func listen(t *testing.T, dir string) (*api.Server, *handler) {
	t.Helper()
	h := &handler{}
	s, err := api.Listen(t.Context(), api.Config{StateDir: dir, Handler: h, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, h
}

func peers(t *testing.T, dir string, want int) []*api.Client {
	t.Helper()
	cs, err := api.Peers(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(cs) != want {
		t.Fatalf("got %d peers, want %d", len(cs), want)
	}
	return cs
}

func TestCalls(t *testing.T) {
	dir := t.TempDir()
	s, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	if d := cmp.Diff(s.Hello(), c.Peer()); d != "" {
		t.Error(d)
	}
	if got, want := c.Peer().PID, os.Getpid(); got != want {
		t.Errorf("pid: got %d, want %d", got, want)
	}
	stats, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff((*handler)(nil).Stats(), stats); d != "" {
		t.Error(d)
	}
	q, err := c.Queue(t.Context())
	if err != nil || q != stats.Queue {
		t.Errorf("queue: got %v %v, want %v", q, err, stats.Queue)
	}
	if err := c.Cancel(t.Context(), "default", "known"); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]sandboxmcp.RequestID{"known"}, h.cancelled); d != "" {
		t.Error(d)
	}
	var e *sandboxmcp.Error
	if err := c.Cancel(t.Context(), "default", "other"); !errors.As(err, &e) || e.Code != sandboxmcp.CodeRequestNotFound || e.Fields["place"] != "here" {
		t.Errorf("unknown request: got %#v, want request_not_found with its field", err)
	}
	if err := c.Cancel(t.Context(), "a b", "known"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("bad namespace: got %v, want invalid_argument", err)
	}
	if err := c.Cancel(t.Context(), "default", "fault"); !errors.As(err, &e) || e.Code != sandboxmcp.CodeInternal || strings.Contains(err.Error(), "secret") {
		t.Errorf("fault: got %v, want internal without the cause", err)
	}
}

func TestRequest(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	c := peers(t, dir, 1)[0]
	for _, q := range []struct {
		ns       sandboxmcp.Namespace
		id       sandboxmcp.RequestID
		content  bool
		code     sandboxmcp.Code
		status   sandboxmcp.Status
		complete bool
		text     string
	}{
		{ns: "default", id: "running", content: true, status: sandboxmcp.StatusRunning, complete: true},
		{ns: "default", id: "ended", status: sandboxmcp.StatusCompleted},
		{ns: "default", id: "ended", content: true, status: sandboxmcp.StatusCompleted, complete: true, text: "hi"},
		{ns: "default", id: "large", content: true, status: sandboxmcp.StatusCompleted},
		{ns: "default", id: "other", code: sandboxmcp.CodeRequestNotFound},
		{ns: "team", id: "ended", code: sandboxmcp.CodeRequestNotFound},
		{ns: "a b", id: "ended", code: sandboxmcp.CodeInvalidArgument},
		{ns: "default", id: "a/b", code: sandboxmcp.CodeRequestNotFound},
	} {
		got, err := c.Request(t.Context(), sandboxmcp.Lookup{Namespace: q.ns, RequestID: q.id, Content: q.content})
		if sandboxmcp.CodeOf(err) != q.code || got.Status != q.status {
			t.Errorf("%+v: got %s and %v", q, got.Status, err)
			continue
		}
		if err != nil {
			continue
		}
		if complete := api.Complete(got); complete != q.complete || got.RequestID != q.id {
			t.Errorf("%+v: got %+v, complete %v", q, got, complete)
		}
		if q.text != "" && (string(got.Artifacts[0].ContentB64) != q.text || got.Metadata["n"] != json.Number("9007199254740993")) {
			t.Errorf("%+v: got %+v", q, got)
		}
	}
}

func TestSocketIsPrivate(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	st, err := os.Stat(filepath.Join(dir, "run"))
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory: got %v %v, want 0700", st.Mode(), err)
	}
	st, err = os.Stat(filepath.Join(dir, "run", s.Hello().ID+".sock"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: got %v %v, want 0600", st.Mode(), err)
	}
}

func TestSharedDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "run"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(t.Context(), api.Config{StateDir: dir, Handler: &handler{}, Logger: quiet()}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("listen: got %v, want a refusal", err)
	}
	if _, err := api.Peers(t.Context(), dir); !errors.Is(err, os.ErrPermission) {
		t.Errorf("peers: got %v, want a refusal", err)
	}
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120))
	listen(t, dir)
	peers(t, dir, 1)
}

func TestDeadSocketIsRemoved(t *testing.T) {
	dir := t.TempDir()
	_, _ = listen(t, dir)
	dead := filepath.Join(dir, "run", "1-dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	peers(t, dir, 1)
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dead socket: got %v, want it gone", err)
	}
}

func TestCloseRemovesSocket(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	c := peers(t, dir, 1)[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: got %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "run"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: got %v %v, want nothing", left, err)
	}
	peers(t, dir, 0)
	if _, err := c.Stats(t.Context()); err == nil {
		t.Error("stats after close: got no error")
	}
}

func TestNoDirectoryNoPeers(t *testing.T) {
	peers(t, filepath.Join(t.TempDir(), "none"), 0)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	peers(t, file, 0)
	peers(t, filepath.Join(file, "below"), 0)
}

func TestBadRequests(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "run", s.Hello().ID+".sock"))
	}}}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/v2/hello", "", 404},
		{"POST", "/v1/stats", "", 404},
		{"GET", "/v1/request", "", 400},
		{"GET", "/v1/request?namespace=default&id=ended&content=maybe", "", 400},
		{"GET", "/v1/request?namespace=default&id=ended&content=true", "", 200},
		{"POST", "/v1/cancel", "{", 400},
		{"POST", "/v1/cancel", `{"namespace":"default","request_id":"known","more":1}`, 400},
		{"POST", "/v1/cancel", `{"namespace":"` + strings.Repeat("x", 1<<20) + `"}`, 400},
		{"POST", "/v1/cancel", `{"namespace":"default","request_id":"a/b"}`, 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://x"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s %s %.40s: got %d, want %d", c.method, c.path, c.body, res.StatusCode, c.want)
		}
	}
	peers(t, dir, 1)
}

func TestMuteServerIsNamed(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "run", "1-mute.sock")})
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
			_ = c.Close() // accepts, and says nothing
		}
	}()
	cs, err := api.Peers(t.Context(), dir)
	if len(cs) != 1 || err == nil || !strings.Contains(err.Error(), "1-mute") {
		t.Errorf("got %d peers and %v, want one and the mute one named", len(cs), err)
	}
}
