package api

import (
	"encoding/json"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// What goes over the socket where the types of the root do not say how.

type cancelRequest struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	RequestID sandboxmcp.RequestID `json:"request_id"`
}

// programRequest is a [sandboxmcp.Request]. What has to arrive byte for byte is
// base64.
type programRequest struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	RequestID sandboxmcp.RequestID `json:"request_id,omitempty"`
	Code      []byte               `json:"code"`
	Language  sandboxmcp.Language  `json:"language,omitempty"`
	FileName  string               `json:"file_name,omitempty"`
	Stdin     []byte               `json:"stdin,omitempty"`
	Env       map[string][]byte    `json:"env,omitempty"`
	Limits    sandboxmcp.Limits    `json:"limits"`
	Strict    bool                 `json:"strict"`
	Modest    bool                 `json:"modest,omitempty"`
	Backend   string               `json:"backend,omitempty"`
	Display   sandboxmcp.Display   `json:"display,omitempty"`
	SessionID sandboxmcp.SessionID `json:"session_id,omitempty"`
	Session   *sessionRequest      `json:"session,omitempty"`
	Network   *networkRequest      `json:"network,omitempty"`
}

// networkRequest is where to a program may go: what the person at the other
// terminal opens for it.
type networkRequest struct {
	AllowedDomains []string `json:"allowed_domains"` // null: what is open
	GrantDomains   bool     `json:"grant_domains"`
	HoldSeconds    float64  `json:"hold_seconds"`
}

func newProgram(r sandboxmcp.Request) programRequest {
	p := programRequest{
		Namespace: r.Namespace, RequestID: r.ID, Code: []byte(r.Code), Language: r.Language, FileName: r.FileName, Stdin: r.Stdin,
		Env: map[string][]byte{}, Limits: r.Limits, Strict: r.Strict, Modest: r.Modest, Backend: r.Backend, Display: r.Display, SessionID: r.SessionID,
	}
	for k, v := range r.Env {
		p.Env[k] = []byte(v)
	}
	if r.Session != nil {
		s := newSession(*r.Session)
		p.Session = &s
	}
	if r.AllowedDomains != nil || r.Hold != 0 {
		p.Network = &networkRequest{r.AllowedDomains, r.GrantDomains, r.Hold.Seconds()}
	}
	return p
}

func (p programRequest) request() sandboxmcp.Request {
	r := sandboxmcp.Request{
		ID: p.RequestID, Namespace: p.Namespace, Actor: Actor, Code: string(p.Code), Language: p.Language, FileName: p.FileName, Stdin: p.Stdin,
		Env: map[string]string{}, Limits: p.Limits, Strict: p.Strict, Modest: p.Modest, Backend: p.Backend, Display: p.Display, SessionID: p.SessionID,
	}
	for k, v := range p.Env {
		r.Env[k] = string(v)
	}
	if p.Session != nil {
		spec := p.Session.spec()
		r.Session = &spec
	}
	if n := p.Network; n != nil {
		r.AllowedDomains, r.GrantDomains, r.Hold = n.AllowedDomains, n.GrantDomains, time.Duration(n.HoldSeconds*float64(time.Second))
	}
	return r
}

// sessionRequest is a [sandboxmcp.SessionSpec].
type sessionRequest struct {
	Namespace  sandboxmcp.Namespace `json:"namespace"`
	SessionID  sandboxmcp.SessionID `json:"session_id,omitempty"`
	Language   sandboxmcp.Language  `json:"language,omitempty"`
	Limits     sandboxmcp.Limits    `json:"limits"`
	Strict     bool                 `json:"strict"`
	Modest     bool                 `json:"modest,omitempty"`
	TTLMinutes float64              `json:"ttl_minutes,omitempty"`
	Backend    string               `json:"backend,omitempty"`
	Fresh      bool                 `json:"fresh,omitempty"`
	Offline    bool                 `json:"offline,omitempty"`
}

func newSession(s sandboxmcp.SessionSpec) sessionRequest {
	return sessionRequest{
		Namespace: s.Namespace, SessionID: s.ID, Language: s.Language, Limits: s.Limits, Strict: s.Strict, Modest: s.Modest,
		TTLMinutes: s.TTL.Minutes(), Backend: s.Backend, Fresh: s.Fresh, Offline: s.Offline,
	}
}

func (s sessionRequest) spec() sandboxmcp.SessionSpec {
	return sandboxmcp.SessionSpec{
		ID: s.SessionID, Namespace: s.Namespace, Actor: Actor, Language: s.Language, Limits: s.Limits, Strict: s.Strict, Modest: s.Modest,
		TTL: time.Duration(s.TTLMinutes * float64(time.Minute)), Backend: s.Backend, Fresh: s.Fresh, Offline: s.Offline,
	}
}

// sessionName names a session, and where it matters a file of it.
type sessionName struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	SessionID sandboxmcp.SessionID `json:"session_id"`
	Path      string               `json:"path,omitempty"`
}

type bridgeRequest struct {
	Namespace sandboxmcp.Namespace       `json:"namespace"`
	Data      map[string]json.RawMessage `json:"data,omitempty"`
	From      sandboxmcp.SessionID       `json:"from_session,omitempty"`
	To        sandboxmcp.SessionID       `json:"to_session,omitempty"`
	Keys      []string                   `json:"keys,omitempty"`
}

type sessionList struct {
	Sessions []sandboxmcp.Session `json:"sessions"`
}

type fileList struct {
	Artifacts []sandboxmcp.SessionFile `json:"artifacts"`
}

type fileContent struct {
	sandboxmcp.SessionFile
	Content []byte `json:"content_base64"`
}

type uploaded struct {
	SessionID sandboxmcp.SessionID `json:"session_id"`
	Path      string               `json:"path"`
}

// event is a line of the answer of execute. One of its parts is there.
type event struct {
	Stream string             `json:"stream,omitempty"`
	Data   []byte             `json:"data,omitempty"`
	Result *sandboxmcp.Result `json:"result,omitempty"`
	Error  map[string]any     `json:"error,omitempty"`
}
