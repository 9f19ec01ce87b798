package api

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

func (s *Server) sessionRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/sessions", s.listSessions)
	mux.HandleFunc("GET /v1/session", s.showSession)
	mux.HandleFunc("POST /v1/session/create", s.createSession)
	mux.HandleFunc("POST /v1/session/terminate", s.terminateSession)
	mux.HandleFunc("GET /v1/inspect", s.inspect)
	mux.HandleFunc("POST /v1/bridge", s.bridge)
	mux.HandleFunc("GET /v1/files", s.listFiles)
	mux.HandleFunc("GET /v1/file", s.readFile)
	mux.HandleFunc("PUT /v1/file", s.putFile)
	mux.HandleFunc("POST /v1/file/remove", s.removeFile)
}

// named reads the namespace and the session of a question; with anything else
// than a session of a legal name, it fails.
func named(r *http.Request) (sandboxmcp.Namespace, sandboxmcp.SessionID, error) {
	form := r.URL.Query()
	return checked(sessionName{Namespace: sandboxmcp.Namespace(form.Get("namespace")), SessionID: sandboxmcp.SessionID(form.Get("id"))})
}

func checked(n sessionName) (sandboxmcp.Namespace, sandboxmcp.SessionID, error) {
	_, err := sandboxmcp.ParseNamespace(string(n.Namespace))
	if err == nil {
		_, err = sandboxmcp.ParseSessionID(string(n.SessionID))
	}
	return n.Namespace, n.SessionID, err
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) {
	ns := sandboxmcp.Namespace(r.URL.Query().Get("namespace"))
	if ns != "" {
		if _, err := sandboxmcp.ParseNamespace(string(ns)); err != nil {
			s.fail(w, err)
			return
		}
	}
	all, err := s.handler.Sessions(r.Context(), ns)
	s.reply(w, sessionList{Sessions: append([]sandboxmcp.Session{}, all...)}, err)
}

func (s *Server) showSession(w http.ResponseWriter, r *http.Request) {
	ns, id, err := named(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	all, err := s.handler.Sessions(r.Context(), ns)
	if err != nil {
		s.fail(w, err)
		return
	}
	i := slices.IndexFunc(all, func(have sandboxmcp.Session) bool { return have.ID == id })
	if i < 0 {
		s.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "this server has no session %s", sandboxmcp.Quote(string(id))))
		return
	}
	s.answer(w, http.StatusOK, all[i])
}

func (s *Server) createSession(w http.ResponseWriter, r *http.Request) {
	var req sessionRequest
	err := read(w, r, maxRequest, &req)
	if err == nil {
		_, err = sandboxmcp.ParseNamespace(string(req.Namespace))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	patient(w)
	made, err := s.handler.CreateSession(r.Context(), req.spec())
	s.reply(w, made, err)
}

func (s *Server) terminateSession(w http.ResponseWriter, r *http.Request) {
	var req sessionName
	err := read(w, r, maxRequest, &req)
	if err == nil {
		_, _, err = checked(req)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	patient(w)
	err = s.handler.TerminateSession(r.Context(), req.Namespace, req.SessionID, Actor)
	s.reply(w, map[string]any{"killed": req.SessionID, "wiped": true}, err)
}

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query()
	ns, err := sandboxmcp.ParseNamespace(form.Get("namespace"))
	id := sandboxmcp.SessionID(form.Get("id"))
	if err == nil && id != "" {
		_, err = sandboxmcp.ParseSessionID(string(id))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	state, err := s.handler.Inspect(r.Context(), ns, id)
	s.reply(w, state, err)
}

func (s *Server) bridge(w http.ResponseWriter, r *http.Request) {
	var req bridgeRequest
	err := read(w, r, maxBridge, &req)
	if err == nil {
		_, err = sandboxmcp.ParseNamespace(string(req.Namespace))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	patient(w)
	done, err := s.handler.Bridge(r.Context(), sandboxmcp.Bridge{Namespace: req.Namespace, Actor: Actor, Data: req.Data, From: req.From, To: req.To, Keys: req.Keys})
	s.reply(w, done, err)
}

func (s *Server) listFiles(w http.ResponseWriter, r *http.Request) {
	ns, id, err := named(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	files, err := s.handler.SessionFiles(r.Context(), ns, id)
	s.reply(w, fileList{Artifacts: append([]sandboxmcp.SessionFile{}, files...)}, err)
}

func (s *Server) readFile(w http.ResponseWriter, r *http.Request) {
	ns, id, err := named(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	form := r.URL.Query()
	limit, err := strconv.ParseInt(form.Get("limit"), 10, 64)
	if err != nil || limit <= 0 || limit > MaxFile {
		s.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "limit is %s; it is a number from 1 to %d", sandboxmcp.Quote(form.Get("limit")), MaxFile))
		return
	}
	patient(w)
	file, content, err := s.handler.ReadFile(r.Context(), ns, id, form.Get("path"), limit)
	s.reply(w, fileContent{SessionFile: file, Content: append([]byte{}, content...)}, err)
}

func (s *Server) putFile(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query()
	ns, id, err := named(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	overwrite, err := flag(form, "overwrite")
	if err != nil {
		s.fail(w, err)
		return
	}
	patient(w)
	content, err := s.receive(w, r)
	if err != nil {
		s.fail(w, err)
		return
	}
	id, path, err := s.handler.Upload(r.Context(), sandboxmcp.Upload{Namespace: ns, SessionID: id, Actor: Actor, Name: form.Get("name"), Content: content, Overwrite: overwrite})
	s.reply(w, uploaded{id, path}, err)
}

// receive reads a file. One whose size is told is held once, one that is too
// large is refused unread.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var content []byte
	long := r.ContentLength > s.upload
	var err error
	switch {
	case long:
	case r.ContentLength >= 0:
		content = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, content)
	default:
		content, err = io.ReadAll(http.MaxBytesReader(w, r.Body, s.upload))
		_, long = errors.AsType[*http.MaxBytesError](err)
	}
	switch {
	case long:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeUploadTooLarge, "the file has more than %d bytes", s.upload).
			WithHint("let the operator raise SANDBOX_MAX_UPLOAD_BYTES").With("limit_bytes", s.upload)
	case err != nil:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the file did not arrive whole").WithHint("send it again")
	}
	return content, nil
}

func (s *Server) removeFile(w http.ResponseWriter, r *http.Request) {
	var req sessionName
	err := read(w, r, maxRequest, &req)
	if err == nil {
		_, _, err = checked(req)
	}
	if err == nil {
		err = s.handler.RemoveFile(r.Context(), req.Namespace, req.SessionID, req.Path, Actor)
	}
	s.reply(w, map[string]any{"removed": req.Path}, err)
}
