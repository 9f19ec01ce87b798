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
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	maxChunk     = 256 << 10       // bytes of a program's output in one event
	writeTimeout = 4 * callTimeout // time to send one event; after that the connection is closed
	cancelRetry  = 20 * time.Millisecond
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

// send writes one event. The id may be empty. After a failure send only returns that failure.
func (s *sender) send(name, id string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if strings.ContainsAny(id, "\r\n\x00") { // it would begin another line
		id = ""
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return s.write(fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", id, name, data))
}

// comment writes a line that clients ignore. It fails if the caller cannot be reached.
func (s *sender) comment() error { return s.write([]byte(":\n\n")) }

func (s *sender) write(text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	s.beginLocked()
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, s.failed = s.w.Write(text); s.failed == nil {
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
		if err := o.to.send(o.name, "", part); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// executeRoute runs a program and streams its output.
type executeRoute struct{}

const executePath = "/v1/execute"

func (executeRoute) about() description {
	return description{method: "POST", path: executePath, in: reflect.TypeFor[body[sandboxmcp.Request]](), media: eventStream}
}

func (executeRoute) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	c, err := h.caller(r, false)
	if err != nil {
		h.fail(w, err)
		return
	}
	if want := r.Header.Get(alikeHeader); want != "" && h.greeting().Alike != want {
		h.fail(w, declined("the server has other settings"))
		return
	}
	var in body[sandboxmcp.Request]
	if err = decodeInput(w, r, maxProgram, "", &in); err != nil {
		h.fail(w, err)
		return
	}
	unhurried(w)
	out := newSender(w)
	in.Value.Stdout, in.Value.Stderr = output{out, "stdout"}, output{out, "stderr"}
	ctx, full := r.Context(), func(err error) error { return err }
	if r.Header.Get(alikeHeader) != "" {
		var end context.CancelFunc
		ctx, full, end = atOnce(ctx, &in.Value)
		defer end()
	}
	res, err := h.service.Execute(ctx, c, in.Value)
	err = full(err)
	switch {
	case err != nil && !out.hasBegun():
		h.fail(w, err)
	case err != nil:
		_ = out.send("error", "", h.coded(err).Body())
	default:
		if sizeOf(res.Artifacts) > maxContent {
			res.Artifacts = withoutContent(res.Artifacts)
		}
		_ = out.send("result", "", res)
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
// the request while it runs. If ctx ends, the server cancels the run. Execute returns when
// the run has ended, so that its session is free again, with a result or an error that says
// cancelled. If the run does not end within five seconds, Execute fails with cancelled and
// closes the connection, which also cancels the run.
func (c *Client) Execute(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	q, err := executeQuestion(ctx, who, &req)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	if _, _, q.body, err = encodeInput(executePath, body[sandboxmcp.Request]{req}); err != nil {
		return sandboxmcp.Result{}, err
	}
	return c.executeBy(ctx, who, req, func(ctx context.Context) (*http.Response, error) { return c.ask(ctx, q) })
}

// executeQuestion gives a request an id and returns its question without the body. It fails if ctx has ended.
func executeQuestion(ctx context.Context, who sandboxmcp.Caller, req *sandboxmcp.Request) (question, error) {
	if ctx.Err() != nil {
		return question{}, cancelledCall(ctx)
	}
	if req.ID == "" {
		req.ID = sandboxmcp.RequestID(uuid.NewString())
	}
	return question{method: http.MethodPost, path: executePath, query: naming(url.Values{}, who)}, nil
}

// executeBy is [Client.Execute] of a request that send sends.
func (c *Client) executeBy(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request, send func(context.Context) (*http.Response, error)) (sandboxmcp.Result, error) {
	open, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	defer context.AfterFunc(ctx, func() {
		c.cancelRun(open, who, req.ID)
		hangUp()
	})()
	drain := relayed(&req)
	res, err := receiveRun(open, req, send)
	drain(ctx)
	if err != nil && ctx.Err() != nil {
		return res, cancelledCall(ctx)
	}
	return res, err
}

func cancelledCall(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the run was cancelled").WithCause(context.Cause(ctx))
}

// cancelRun cancels a request of the server. It returns when ctx ends, or after c.patience.
func (c *Client) cancelRun(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID) {
	ctx, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	tick := time.NewTicker(cancelRetry)
	defer tick.Stop()
	for c.Cancel(ctx, who, id) != nil { // the server may not know the request yet
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	<-ctx.Done()
}

// receiveRun sends a request and receives its run until the run has ended.
func receiveRun(ctx context.Context, req sandboxmcp.Request, send func(context.Context) (*http.Response, error)) (res sandboxmcp.Result, err error) {
	answer, err := send(ctx)
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
			failed = failure(executePath, answer.StatusCode, data)
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
	return res, fmt.Errorf("decode answer of %s: %w", executePath, err)
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
