package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	maxChunk     = 256 << 10       // bytes of a program's output in one event
	writeTimeout = 4 * callTimeout // time to send one event; after that the connection is closed
	eventStream  = "text/event-stream"
)

// sender writes server-sent events. Its methods may be called concurrently.
type sender struct {
	mu      sync.Mutex // guards the fields below
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	failed  error // why the caller can no longer be reached; nil: it can
}

func newSender(w http.ResponseWriter) *sender {
	return &sender{w: w, control: http.NewResponseController(w)}
}

// begin sends the header of the response. It may be called more than once.
func (s *sender) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	if s.failed == nil {
		s.failed = s.control.Flush()
	}
	return s.failed
}

func (s *sender) beginLocked() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", eventStream)
		s.w.Header().Set("Cache-Control", "no-store")
		s.w.WriteHeader(http.StatusOK)
	}
}

func (s *sender) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// send writes one event. After a failure it only returns that failure.
func (s *sender) send(name string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	s.beginLocked()
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, s.failed = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, data); s.failed == nil {
		s.failed = s.control.Flush()
	}
	return s.failed
}

// output sends one stream of a program as events.
type output struct {
	to   *sender
	name string
}

// Write sends p in chunks of at most maxChunk bytes.
func (o output) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), maxChunk)]
		if err := o.to.send(o.name, part); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// executeRoute runs a program and streams its output.
type executeRoute struct{}

const executePath = "/v1/execute"

func (executeRoute) pattern() string { return "POST " + executePath }

func (executeRoute) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	c, err := h.caller(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	var in body[sandboxmcp.Request]
	if err = decodeInput(w, r, maxProgram, &in); err != nil {
		h.fail(w, err)
		return
	}
	unhurried(w)
	out := newSender(w)
	in.Value.Stdout, in.Value.Stderr = output{out, "stdout"}, output{out, "stderr"}
	res, err := h.service.Execute(r.Context(), c, in.Value)
	switch {
	case err != nil && !out.hasBegun():
		h.fail(w, err)
	case err != nil:
		_ = out.send("error", h.coded(err).Body())
	default:
		if sizeOf(res.Artifacts) > maxContent {
			res.Artifacts = withoutContent(res.Artifacts)
		}
		_ = out.send("result", res)
	}
}

func withoutContent(files []sandboxmcp.Artifact) []sandboxmcp.Artifact {
	out := make([]sandboxmcp.Artifact, len(files))
	for i, f := range files {
		f.ContentB64 = nil
		out[i] = f
	}
	return out
}

// Execute has the server run a request, and passes the program's output to the writers of
// the request while it runs. If ctx ends, the server ends the run and Execute fails with
// cancelled.
func (c *Client) Execute(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	res, err := c.execute(ctx, who, req)
	if err != nil && ctx.Err() != nil {
		return res, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the run was cancelled").WithCause(context.Cause(ctx))
	}
	return res, err
}

func (c *Client) execute(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (res sandboxmcp.Result, err error) {
	path, query, body, err := encodeInput(executePath, body[sandboxmcp.Request]{req})
	if err != nil {
		return res, err
	}
	answer, err := c.ask(ctx, question{method: http.MethodPost, path: path, query: naming(query, who), body: body})
	var coded *sandboxmcp.Error
	switch {
	case err == nil:
	case errors.As(err, &coded) || Unreached(err):
		return res, err
	default: // the server sends the header with the first output, so the program may be running
		return res, endedEarly().WithCause(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var failed error
	finished := false
	err = receive(io.LimitReader(answer.Body, 2*maxResult), func(name string, data []byte) error {
		switch name {
		case "stdout", "stderr":
			var part []byte
			to := req.Stdout
			if name == "stderr" {
				to = req.Stderr
			}
			if bad := json.Unmarshal(data, &part); bad != nil || to == nil {
				return bad
			}
			_, _ = to.Write(part)
			return nil
		case "result":
			finished = true
			return decodeExact(data, &res)
		case "error":
			finished = true
			failed = failure(path, answer.StatusCode, data)
		}
		return nil
	})
	switch {
	case failed != nil:
		return sandboxmcp.Result{}, failed
	case finished:
		return res, err
	case err == nil || isEnd(err):
		return res, endedEarly()
	}
	return res, fmt.Errorf("decode answer of %s: %w", path, err)
}

// endedEarly is the error of a run whose server has died. The program may have run partly.
func endedEarly() *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the server ended before the program did").WithHint("check what the program has done, then run it again")
}

// receive reads server-sent events until the stream ends. It returns the first error of
// each or of the stream.
func receive(r io.Reader, each func(name string, data []byte) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	name, data := "", []byte(nil)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return nil
			}
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = string(value)
		} else if value, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = value
		} else if len(line) == 0 && name != "" {
			if err := each(name, data); err != nil {
				return err
			}
			name, data = "", nil
		}
	}
}

// isEnd reports whether a stream ended because the server died, and not because of invalid
// data.
func isEnd(err error) bool {
	var bad *json.SyntaxError
	var unfit *json.UnmarshalTypeError
	return !errors.As(err, &bad) && !errors.As(err, &unfit)
}

// followRoute streams events.
type followRoute struct{}

const followPath = "/v1/events"

func (followRoute) pattern() string { return "GET " + followPath }

// serve sends events until the caller closes the connection or is too slow, or the server
// closes.
func (followRoute) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	c, err := h.caller(r)
	var in followIn
	if err == nil {
		err = decodeInput(w, r, maxRequest, &in)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	defer h.followers.Add(-1)
	if h.followers.Add(1) > maxFollow {
		h.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "this server has %d followers of events, which is the limit", maxFollow).WithHint("end one of them first"))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ending, cancel)() //nolint:contextcheck // it also ends with the server
	events, err := h.service.Follow(ctx, c, in.Recent)
	if err != nil {
		h.fail(w, err)
		return
	}
	unhurried(w)
	out := newSender(w)
	if out.begin() != nil {
		return
	}
	for e := range events {
		if out.send("event", e) != nil {
			return
		}
	}
}

// Follow implements [sandboxmcp.Events]. The channel is closed when ctx ends or the
// connection is lost.
func (c *Client) Follow(ctx context.Context, who sandboxmcp.Caller, recent bool) (<-chan sandboxmcp.Event, error) {
	path, query, _, err := encodeInput(followPath, followIn{recent})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	answered := time.AfterFunc(callTimeout, func() { cancel(context.DeadlineExceeded) })            // gives up on a server that hangs
	res, err := c.ask(ctx, question{method: http.MethodGet, path: path, query: naming(query, who)}) //nolint:bodyclose // the goroutine closes it
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answered.Stop()
	out := make(chan sandboxmcp.Event)
	go func() {
		defer close(out)
		defer cancel(nil)
		defer func() { _ = res.Body.Close() }()
		_ = receive(res.Body, func(_ string, data []byte) error {
			var e sandboxmcp.Event
			if err := decodeExact(data, &e); err != nil {
				return err
			}
			select {
			case out <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return out, nil
}
