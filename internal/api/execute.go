package api

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// program reads what execute and start are sent.
func program(w http.ResponseWriter, r *http.Request) (sandboxmcp.Request, error) {
	var p programRequest
	err := read(w, r, maxProgram, &p)
	if err == nil {
		_, err = sandboxmcp.ParseNamespace(string(p.Namespace))
	}
	if err == nil && p.SessionID != "" {
		_, err = sandboxmcp.ParseSessionID(string(p.SessionID))
	}
	return p.request(), err
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	req, err := program(w, r)
	if err != nil {
		s.fail(w, err)
		return
	}
	patient(w)
	res, err := s.handler.Start(r.Context(), req)
	s.reply(w, res, err)
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	req, err := program(w, r)
	if err != nil {
		s.fail(w, err)
		return
	}
	patient(w)
	out := &events{w: w, control: http.NewResponseController(w)}
	req.Stdout, req.Stderr = stream{out, "stdout"}, stream{out, "stderr"}
	res, err := s.handler.Execute(r.Context(), req)
	switch {
	case err != nil && !out.begun():
		s.fail(w, err)
	case err != nil:
		e := s.coded(err)
		_ = out.send(event{Error: e.Body()})
	default:
		if sizeOf(res.Artifacts) > maxContent {
			res.Artifacts = withoutContent(res.Artifacts)
		}
		_ = out.send(event{Result: &res})
	}
}

// withoutContent is a copy of a list of files that leaves out what is in them.
func withoutContent(files []sandboxmcp.Artifact) []sandboxmcp.Artifact {
	out := make([]sandboxmcp.Artifact, len(files))
	for i, f := range files {
		f.ContentB64 = nil
		out[i] = f
	}
	return out
}

// events writes an answer in lines.
type events struct {
	mu      sync.Mutex // guards what follows
	w       http.ResponseWriter
	control *http.ResponseController
	headed  bool
	failed  error // the caller went away
}

func (e *events) begun() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.headed
}

func (e *events) send(ev event) error {
	line, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed != nil {
		return e.failed
	}
	if !e.headed {
		e.headed = true
		e.w.Header().Set("Content-Type", "application/x-ndjson")
		e.w.WriteHeader(http.StatusOK)
	}
	if _, e.failed = e.w.Write(append(line, '\n')); e.failed == nil {
		e.failed = e.control.Flush()
	}
	return e.failed
}

// stream is one of the program's streams on its way to the caller.
type stream struct {
	to   *events
	name string
}

// maxChunk bounds the bytes of an event.
const maxChunk = 256 << 10

// Write sends what the program wrote.
func (s stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), maxChunk)]
		if err := s.to.send(event{Stream: s.name, Data: part}); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}
