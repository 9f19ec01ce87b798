package api_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// alike opens a server with a digest that a test may change.
func alike(t *testing.T, s *service, digest *atomic.Value) (*api.Client, *api.Server, string) {
	t.Helper()
	state := t.TempDir()
	server, err := api.Listen(t.Context(), api.Config{
		StateDir: state, Service: s, Logger: slog.New(slog.DiscardHandler), Alike: func() string { return digest.Load().(string) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c := api.First(t.Context(), state, func(h api.Hello) bool { return h.Alike == digest.Load().(string) })
	if c == nil {
		t.Fatal("got no server, want the one that runs")
	}
	return c, server, state
}

func TestOnlyAServerThatIsAlikeRunsTheRequest(t *testing.T) {
	var digest atomic.Value
	digest.Store("one")
	ran := 0
	s := &service{run: func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		ran++
		return sandboxmcp.Result{ExitCode: 3}, nil
	}}
	c, server, state := alike(t, s, &digest)
	res, err := c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x"}, "one")
	if err != nil || res.ExitCode != 3 || ran != 1 {
		t.Fatalf("the same digest: got %+v, %v and %d runs, want one", res, err, ran)
	}
	digest.Store("two") // the server has reloaded its settings
	if _, err = c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x"}, "one"); !api.Declined(err) || ran != 1 {
		t.Errorf("another digest: got %v and %d runs, want declined and no other run", err, ran)
	}
	if other := api.First(t.Context(), state, func(h api.Hello) bool { return h.Alike == "one" }); other != nil {
		t.Errorf("got a server %+v, want none", other.Peer())
	}
	digest.Store("") // it does not know
	if _, err = c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x"}, "one"); !api.Declined(err) {
		t.Errorf("no digest: got %v, want declined", err)
	}
	if err = server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x"}, "one"); !api.Declined(err) || ran != 1 {
		t.Errorf("a server that has ended: got %v and %d runs, want declined", err, ran)
	}
}

// TestARequestThatWouldWaitIsDeclined: the caller can run it itself.
func TestARequestThatWouldWaitIsDeclined(t *testing.T) {
	var digest atomic.Value
	digest.Store("one")
	full := sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "full")
	failed := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "no such thing")
	s := &service{}
	c, _, _ := alike(t, s, &digest)
	for _, x := range []struct {
		name string
		run  func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error)
		want bool
	}{
		{"waits", func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
			r.Queued(func() int { return 1 })
			<-ctx.Done()
			return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "left")
		}, true},
		{"full", func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return sandboxmcp.Result{}, full }, true},
		{"refused", func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
			return sandboxmcp.Result{}, failed
		}, false},
	} {
		s.run = x.run
		_, err := c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x"}, "one")
		if err == nil || api.Declined(err) != x.want {
			t.Errorf("%s: got %v, want declined %v", x.name, err, x.want)
		}
	}
	s.run = func(_ context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		if r.Queued != nil {
			t.Error("without a digest: got a request that leaves the queue, want one that waits")
		}
		return sandboxmcp.Result{}, nil
	}
	if _, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x"}); err != nil {
		t.Error(err)
	}
}

// TestAServerThatEndsIsNoSecondRun: when the connection breaks after the request was sent, the
// program may have run, so the error is no declined request.
func TestAServerThatEndsIsNoSecondRun(t *testing.T) {
	var digest atomic.Value
	digest.Store("one")
	var server *api.Server
	s := &service{run: func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		_, _ = io.WriteString(r.Stdout, "begun")
		go func() { _ = server.Close() }()
		<-ctx.Done()
		return sandboxmcp.Result{}, ctx.Err()
	}}
	c, srv, _ := alike(t, s, &digest)
	server = srv
	var out strings.Builder
	_, err := c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x", Stdout: &out}, "one")
	if err == nil || api.Declined(err) || !strings.Contains(err.Error(), "the server ended before the program did") && sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want an error that says that the server ended", err)
	}
	if out.String() != "begun" {
		t.Errorf("got the output %q, want what came before the end", out.String())
	}
}

// TestASlowReaderHoldsUpNoServer: the server sends all output and ends the run while the caller's
// writer still waits; the caller returns when the writer has got it.
func TestASlowReaderHoldsUpNoServer(t *testing.T) {
	const parts = 64
	var digest atomic.Value
	digest.Store("one")
	sent := make(chan struct{})
	s := &service{run: func(_ context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		defer close(sent)
		for range parts {
			if _, err := r.Stdout.Write(make([]byte, maxPart)); err != nil {
				t.Errorf("send: got %v, want no failure", err)
			}
		}
		return sandboxmcp.Result{}, nil
	}}
	c, _, _ := alike(t, s, &digest)
	w := &slow{until: sent}
	if _, err := c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x", Stdout: w}, "one"); err != nil {
		t.Fatal(err)
	}
	if w.n != parts*maxPart {
		t.Errorf("got %d bytes, want %d", w.n, parts*maxPart)
	}
	// A caller that is interrupted does not wait for its writer.
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	s.run = func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		_, _ = io.WriteString(r.Stdout, "x")
		cancel()
		return sandboxmcp.Result{}, nil
	}
	_, _ = c.ExecuteAlike(ctx, owner(), sandboxmcp.Request{Code: "x", Stdout: &slow{until: never}}, "one")
}

const maxPart = 128 << 10

// slow is a writer that waits before it takes anything.
type slow struct {
	until <-chan struct{}
	n     int
}

func (w *slow) Write(p []byte) (int, error) {
	<-w.until
	w.n += len(p)
	return len(p), nil
}

// TestAFrozenServerNeverGetsTheProgram: a server that accepts connections and does not answer has only the header
// of the request, so that the caller may run the program. That holds also if the server goes on later.
func TestAFrozenServerNeverGetsTheProgram(t *testing.T) {
	state := t.TempDir()
	dir := filepath.Join(state, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "1-frozen.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		all, _ := io.ReadAll(conn) // until the caller has gone
		_ = conn.Close()
		got <- string(all)
	}()
	c := api.Sole(state, "1-frozen")
	if _, err := c.ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "the program"}, "one"); !api.Declined(err) {
		t.Errorf("got %v, want declined", err)
	}
	if text := <-got; !strings.HasPrefix(text, "POST ") || !strings.HasSuffix(text, "\r\n\r\n") || strings.Contains(text, "program") {
		t.Errorf("the server got %q, want a header without a body", text)
	}
}

// TestADeadServerIsForgotten: its socket and its proof are removed.
func TestADeadServerIsForgotten(t *testing.T) {
	state := t.TempDir()
	dir := filepath.Join(state, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "1-dead.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err = os.WriteFile(filepath.Join(dir, "1-dead.key"), []byte("proof"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = api.Sole(state, "1-dead").ExecuteAlike(t.Context(), owner(), sandboxmcp.Request{Code: "x"}, "one"); !api.Declined(err) {
		t.Errorf("got %v, want declined", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("got the files %v, %v, want none", left, err)
	}
}

// TestAnInterruptedOfferIsCancelled: the caller that is interrupted before the server has taken the request does not
// run the program itself.
func TestAnInterruptedOfferIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var digest atomic.Value
	digest.Store("one")
	c, _, _ := alike(t, &service{}, &digest)
	cancel()
	if _, err := c.ExecuteAlike(ctx, owner(), sandboxmcp.Request{Code: "x"}, "one"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled || api.Declined(err) {
		t.Errorf("got %v, want cancelled", err)
	}
}
