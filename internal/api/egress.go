package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// EgressHandler is what a server offers of its gate. Who asks here is the
// person whose server it is, or root.
type EgressHandler interface {
	// Egress tells what is asked for and open, of every namespace for an empty one.
	Egress(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.EgressList, error)

	// DecideEgress answers a question, or opens a domain that nobody asked for.
	DecideEgress(ctx context.Context, d sandboxmcp.EgressDecision) (sandboxmcp.EgressAnswer, error)

	// RevokeEgress closes a domain, or fails with request_not_found.
	RevokeEgress(ctx context.Context, ns sandboxmcp.Namespace, domain, actor string) (sandboxmcp.EgressRevoked, error)
}

func (s *Server) egressRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/egress", s.listEgress)
	mux.HandleFunc("POST /v1/egress/decide", s.decideEgress)
	mux.HandleFunc("POST /v1/egress/revoke", s.revokeEgress)
}

// decisionRequest is a [sandboxmcp.EgressDecision].
type decisionRequest struct {
	ID        string                `json:"id,omitempty"`
	Namespace sandboxmcp.Namespace  `json:"namespace,omitempty"`
	Domain    string                `json:"domain,omitempty"`
	Deny      bool                  `json:"deny,omitempty"`
	Scope     sandboxmcp.GrantScope `json:"scope,omitempty"`
	Seconds   float64               `json:"seconds,omitempty"`
	SessionID sandboxmcp.SessionID  `json:"session_id,omitempty"`
}

type revokeRequest struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	Domain    string               `json:"domain"`
}

func (s *Server) listEgress(w http.ResponseWriter, r *http.Request) {
	ns := sandboxmcp.Namespace(r.URL.Query().Get("namespace"))
	if ns != "" {
		if _, err := sandboxmcp.ParseNamespace(string(ns)); err != nil {
			s.fail(w, err)
			return
		}
	}
	list, err := s.handler.Egress(r.Context(), ns)
	s.reply(w, list, err)
}

func (s *Server) decideEgress(w http.ResponseWriter, r *http.Request) {
	var req decisionRequest
	err := read(w, r, maxRequest, &req)
	if err == nil && (req.ID == "") == (req.Domain == "") {
		err = sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "one of id and domain is needed")
	}
	if err == nil && (req.Domain != "" || req.Namespace != "") {
		_, err = sandboxmcp.ParseNamespace(string(req.Namespace))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	// Whoever hangs up has decided nevertheless.
	answer, err := s.handler.DecideEgress(context.WithoutCancel(r.Context()), sandboxmcp.EgressDecision{
		ID: req.ID, Namespace: req.Namespace, Domain: req.Domain, Deny: req.Deny, Scope: req.Scope,
		For: time.Duration(req.Seconds * float64(time.Second)), SessionID: req.SessionID, Actor: Actor,
	})
	s.reply(w, answer, err)
}

func (s *Server) revokeEgress(w http.ResponseWriter, r *http.Request) {
	var req revokeRequest
	err := read(w, r, maxRequest, &req)
	if err == nil {
		_, err = sandboxmcp.ParseNamespace(string(req.Namespace))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	done, err := s.handler.RevokeEgress(context.WithoutCancel(r.Context()), req.Namespace, req.Domain, Actor)
	s.reply(w, done, err)
}

// Egress asks what is asked for and open, of every namespace for an empty one.
func (c *Client) Egress(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.EgressList, error) {
	var l sandboxmcp.EgressList
	err := c.get(ctx, "/v1/egress", url.Values{"namespace": {string(ns)}}, &l)
	return l, err
}

// DecideEgress has the server carry out what a person decided; the actor is the
// server's to name.
func (c *Client) DecideEgress(ctx context.Context, d sandboxmcp.EgressDecision) (sandboxmcp.EgressAnswer, error) {
	var a sandboxmcp.EgressAnswer
	err := c.post(ctx, "/v1/egress/decide", decisionRequest{
		ID: d.ID, Namespace: d.Namespace, Domain: d.Domain, Deny: d.Deny, Scope: d.Scope, Seconds: d.For.Seconds(), SessionID: d.SessionID,
	}, &a)
	return a, err
}

// RevokeEgress closes a domain. It fails with request_not_found when nobody has
// opened it.
func (c *Client) RevokeEgress(ctx context.Context, ns sandboxmcp.Namespace, domain string) (sandboxmcp.EgressRevoked, error) {
	var r sandboxmcp.EgressRevoked
	err := c.post(ctx, "/v1/egress/revoke", revokeRequest{ns, domain}, &r)
	return r, err
}
