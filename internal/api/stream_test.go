package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// TestExecuteStreamsOutput: output reaches the caller while the program runs, byte
// for byte, and the result keeps its numbers and the content of its files.
func TestExecuteStreamsOutput(t *testing.T) {
	c, s, _ := pair(t)
	seen := make(chan struct{})
	long := strings.Repeat("y", 1<<20)
	s.run = func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		_, _ = io.WriteString(r.Stdout, "first")
		select { // the program waits for its reader
		case <-seen:
		case <-ctx.Done():
		}
		_, _ = io.WriteString(r.Stderr, "err\xff\x00")
		_, _ = io.WriteString(r.Stdout, long)
		return sandboxmcp.Result{
			ExitCode: 3, Artifacts: []sandboxmcp.Artifact{{Name: "a", SizeBytes: 1, ContentB64: []byte("a")}}, Metadata: map[string]any{"n": large},
		}, nil
	}
	var stdout, stderr bytes.Buffer
	out := writer(func(p []byte) {
		if stdout.Len() == 0 {
			close(seen)
		}
		stdout.Write(p)
	})
	res, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x", Stdout: out, Stderr: &stderr})
	if err != nil || res.ExitCode != 3 || !api.Complete(res) || string(res.Artifacts[0].ContentB64) != "a" || res.Metadata["n"] != large {
		t.Errorf("got %+v and %v, want exit code 3, the file's content and n %s", res, err, large)
	}
	if got, want := stdout.String(), "first"+long; got != want {
		t.Errorf("stdout: got %d bytes, want %d", len(got), len(want))
	}
	if got, want := stderr.String(), "err\xff\x00"; got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
}

func TestExecuteNeedsNoWriters(t *testing.T) {
	c, s, _ := pair(t)
	s.run = func(_ context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		_, err := io.WriteString(io.MultiWriter(r.Stdout, r.Stderr), "text")
		return sandboxmcp.Result{ExitCode: 3}, err
	}
	if res, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x"}); err != nil || res.ExitCode != 3 {
		t.Errorf("got %+v and %v, want exit code 3", res, err)
	}
}

// TestExecuteFailsBeforeAndAfterOutput: a failure arrives in the same form whether
// or not output was sent before it.
func TestExecuteFailsBeforeAndAfterOutput(t *testing.T) {
	c, s, _ := pair(t)
	var failures []*sandboxmcp.Error
	for _, before := range []string{"", "output"} {
		s.run = func(_ context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
			_, _ = io.WriteString(r.Stdout, before)
			return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "busy").WithHint("wait").With("place", "here").With("n", large)
		}
		_, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x"})
		var got *sandboxmcp.Error
		if !errors.As(err, &got) || got.Code != sandboxmcp.CodeSessionBusy || got.Hint != "wait" || got.Fields["place"] != "here" || got.Fields["n"] != large {
			t.Errorf("after %q: got %#v, want %s with its hint and fields", before, err, sandboxmcp.CodeSessionBusy)
		}
		failures = append(failures, got)
	}
	if d := diff(failures[0], failures[1]); d != "" {
		t.Errorf("got another failure after output (-before +after):\n%s", d)
	}
}

// TestExecuteLeavesOutLargeContent: files of more than 32 MiB come without content.
func TestExecuteLeavesOutLargeContent(t *testing.T) {
	c, s, _ := pair(t)
	s.run = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		return sandboxmcp.Result{Artifacts: []sandboxmcp.Artifact{{Name: "a", SizeBytes: 32 << 20}, {Name: "b", SizeBytes: 1, ContentB64: []byte("b")}}}, nil
	}
	res, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x"})
	if err != nil || len(res.Artifacts) != 2 || len(res.Artifacts[1].ContentB64) != 0 || api.Complete(res) {
		t.Errorf("got %+v and %v, want two files without content", res, err)
	}
}

func TestExecuteFailsIfTheServerEnds(t *testing.T) {
	c, s, server := pair(t)
	s.run = func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		_, _ = io.WriteString(r.Stdout, "x")
		<-ctx.Done()
		return sandboxmcp.Result{}, ctx.Err()
	}
	out := writer(func([]byte) { _ = server.Close() })
	if _, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x", Stdout: out}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeExecutionFailed {
		t.Errorf("got %v, want %s", err, sandboxmcp.CodeExecutionFailed)
	}
}

// TestExecuteReturnsWhenTheCancelledRunHasEnded: if ctx ends, before output or after, the
// client cancels the request by its id and waits for its result. It asks again if the server
// does not know the request yet.
func TestExecuteReturnsWhenTheCancelledRunHasEnded(t *testing.T) {
	for name, writes := range map[string]bool{"BeforeOutput": false, "AfterOutput": true} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := pair(t)
			running, cancelled := make(chan struct{}), make(chan struct{})
			var id sandboxmcp.RequestID
			s.run = func(_ context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
				if writes {
					_, _ = io.WriteString(r.Stdout, "x")
				}
				id = r.ID
				close(running)
				<-cancelled
				return sandboxmcp.Result{Status: sandboxmcp.StatusCancelled}, nil
			}
			asked := 0
			s.refuse = func(was call) error {
				if was.verb != "Cancel" {
					return nil
				}
				if asked++; asked < 3 || was.in[0] != id {
					return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no")
				}
				close(cancelled)
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-running
				cancel()
			}()
			res, err := c.Execute(ctx, owner(), sandboxmcp.Request{Code: "x"})
			if err != nil || res.Status != sandboxmcp.StatusCancelled {
				t.Errorf("got %+v and %v, want the result with the status %s", res, err, sandboxmcp.StatusCancelled)
			}
		})
	}
}

// TestHangUpCancelsTheRun: if a cancelled run does not end in time, the client closes the
// connection, and the service's context ends.
func TestHangUpCancelsTheRun(t *testing.T) {
	c, s, _ := pair(t)
	c.SetPatience(50 * time.Millisecond)
	running, ended := make(chan struct{}), make(chan struct{})
	s.run = func(ctx context.Context, _ sandboxmcp.Request) (sandboxmcp.Result, error) {
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
	if _, err := c.Execute(ctx, owner(), sandboxmcp.Request{Code: "x"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want %s", err, sandboxmcp.CodeCancelled)
	}
	<-ended
	if _, err := c.Execute(ctx, owner(), sandboxmcp.Request{Code: "x"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled || len(s.take()) != 2 {
		t.Errorf("got %v, want %s without a call", err, sandboxmcp.CodeCancelled)
	}
}

// TestChangesOutliveTheirCaller: a change of what a person decides goes on if the
// caller hangs up, so that it is never done by half. Other calls end.
func TestChangesOutliveTheirCaller(t *testing.T) {
	lasting := []string{"DecideEgress", "RevokeEgress", "AddSecret", "DeleteSecret", "SetLimits"}
	dir := t.TempDir()
	s := &blocking{arrived: make(chan struct{}), release: make(chan struct{}), ended: make(chan error, 1)}
	serve(t, api.Config{StateDir: dir, Service: s})
	c := peers(t, dir, 1)[0]
	ask := map[string]func(context.Context) error{
		"DecideEgress": func(ctx context.Context) error {
			_, err := c.DecideEgress(ctx, owner(), sandboxmcp.AccessDecision{ID: "a"})
			return err
		},
		"RevokeEgress": func(ctx context.Context) error { _, err := c.RevokeEgress(ctx, owner(), "a.example.com"); return err },
		"AddSecret":    func(ctx context.Context) error { return c.AddSecret(ctx, owner(), filled[sandboxmcp.SecretSpec]()) },
		"DeleteSecret": func(ctx context.Context) error { return c.DeleteSecret(ctx, owner(), "A") },
		"SetLimits": func(ctx context.Context) error {
			_, err := c.SetLimits(ctx, owner(), sandboxmcp.LimitsChange{})
			return err
		},
	}
	for _, name := range lasting {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() { asked <- ask[name](ctx) }()
		<-s.arrived
		cancel()
		if err := <-asked; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", name, err, context.Canceled)
		}
		s.release <- struct{}{}
		if err := <-s.ended; err != nil {
			t.Errorf("%s: got the context's end %v in the service, want none", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.arrived
		cancel()
	}()
	if _, err := c.Inspect(ctx, owner(), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Inspect: got %v, want %v", err, context.Canceled)
	}
	if err := <-s.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Inspect: got the context's end %v in the service, want %v", err, context.Canceled)
	}
}

// blocking is a service whose changes wait for a test.
type blocking struct {
	service
	arrived chan struct{}
	release chan struct{}
	ended   chan error // the context's error when the call ended
}

func (b *blocking) wait(ctx context.Context) error {
	b.arrived <- struct{}{}
	<-b.release
	b.ended <- ctx.Err()
	return ctx.Err()
}

func (b *blocking) Inspect(ctx context.Context, _ sandboxmcp.Caller, _ sandboxmcp.SessionID) (sandboxmcp.State, error) {
	b.arrived <- struct{}{}
	<-ctx.Done()
	b.ended <- ctx.Err()
	return sandboxmcp.State{}, ctx.Err()
}

func (b *blocking) DecideEgress(ctx context.Context, _ sandboxmcp.Caller, _ sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return sandboxmcp.AccessAnswer{}, b.wait(ctx)
}

func (b *blocking) RevokeEgress(ctx context.Context, _ sandboxmcp.Caller, _ string) (sandboxmcp.AccessRevoked, error) {
	return sandboxmcp.AccessRevoked{}, b.wait(ctx)
}

func (b *blocking) AddSecret(ctx context.Context, _ sandboxmcp.Caller, _ sandboxmcp.SecretSpec) error {
	return b.wait(ctx)
}

func (b *blocking) DeleteSecret(ctx context.Context, _ sandboxmcp.Caller, _ string) error {
	return b.wait(ctx)
}

func (b *blocking) SetLimits(ctx context.Context, _ sandboxmcp.Caller, _ sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	return sandboxmcp.LimitsChanged{}, b.wait(ctx)
}

// TestDrainLetsAnswersEnd: a drain lets no new caller in, and a run that is going
// ends with its result.
func TestDrainLetsAnswersEnd(t *testing.T) {
	dir := t.TempDir()
	server, s := listen(t, dir)
	c := peers(t, dir, 1)[0]
	drained := make(chan error, 1)
	s.run = func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		go func() { drained <- server.Drain(context.WithoutCancel(ctx)) }()
		for ctx.Err() == nil { // until no server is found any more
			if left, err := os.ReadDir(filepath.Join(dir, "run")); err != nil || len(left) == 0 {
				break
			}
			_, _ = io.WriteString(r.Stdout, ".")
		}
		return sandboxmcp.Result{ExitCode: 7}, nil
	}
	res, err := c.Execute(t.Context(), owner(), sandboxmcp.Request{Code: "x"})
	if err != nil || res.ExitCode != 7 {
		t.Errorf("got %+v and %v, want exit code 7", res, err)
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: got %v, want success", err)
	}
	peers(t, dir, 0)
}

// TestDrainEndsWithItsContext: a run that goes on longer is cancelled.
func TestDrainEndsWithItsContext(t *testing.T) {
	c, s, server := pair(t)
	short, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	s.run = func(ctx context.Context, _ sandboxmcp.Request) (sandboxmcp.Result, error) {
		cancel()
		<-ctx.Done()
		close(ended)
		return sandboxmcp.Result{}, ctx.Err()
	}
	asked := make(chan error, 1)
	go func() {
		_, err := c.Execute(context.WithoutCancel(t.Context()), owner(), sandboxmcp.Request{Code: "x"})
		asked <- err
	}()
	<-short.Done()
	if err := server.Drain(short); !errors.Is(err, context.Canceled) {
		t.Errorf("drain: got %v, want %v", err, context.Canceled)
	}
	<-ended
	if err := <-asked; err == nil {
		t.Error("the caller: got success, want a failure")
	}
}
