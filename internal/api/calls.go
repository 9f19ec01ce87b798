package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

func (s *Server) lookup(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query()
	ns, err := sandboxmcp.ParseNamespace(form.Get("namespace"))
	if err != nil {
		s.fail(w, err)
		return
	}
	id, err := sandboxmcp.ParseRequestID(form.Get("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	content, err := flag(form, "content")
	if err != nil {
		s.fail(w, err)
		return
	}
	q := sandboxmcp.Lookup{Namespace: ns, RequestID: id}
	res, err := s.handler.Lookup(r.Context(), q)
	// Only what is small enough is read into the memory of a server.
	if err == nil && content && len(res.Artifacts) > 0 && sizeOf(res.Artifacts) <= maxContent {
		q.Content = true
		res, err = s.handler.Lookup(r.Context(), q)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, http.StatusOK, res)
}

func sizeOf(files []sandboxmcp.Artifact) (sum int64) {
	for _, f := range files {
		sum += f.SizeBytes
	}
	return sum
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) {
	var req cancelRequest
	err := read(w, r, maxRequest, &req)
	if err == nil {
		_, err = sandboxmcp.ParseNamespace(string(req.Namespace))
	}
	if err == nil {
		_, err = sandboxmcp.ParseRequestID(string(req.RequestID))
	}
	if err == nil {
		err = s.handler.Cancel(r.Context(), req.Namespace, req.RequestID)
	}
	s.reply(w, map[string]any{"cancelled": req.RequestID}, err)
}

// reply answers with what came of a call: a body, or how it failed.
func (s *Server) reply(w http.ResponseWriter, body any, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, http.StatusOK, body)
}

// read decodes a body of at most limit bytes, strictly and to its end: only
// then is it noticed when the caller hangs up.
func read(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err = d.Decode(into); err == nil && d.More() {
			err = errors.New("something stands after its end")
		}
	}
	if err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the body is not a request of %s: %v", r.URL.Path, err)
	}
	return nil
}

// patient gives a call the time that it takes: as long as the caller waits.
func patient(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}

// flag reads true or false; false when it is not there.
func flag(form url.Values, name string) (bool, error) {
	switch form.Get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is %s; it is true or false", name, sandboxmcp.Quote(form.Get(name)))
}
