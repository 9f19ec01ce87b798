package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// AuditHandler is what a server offers of the record. Others ask it for one that
// is in its memory; one on disk they can read themselves.
type AuditHandler interface {
	// Audit returns what the record has of a query.
	Audit(ctx context.Context, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error)

	// VerifyAudit checks the whole record.
	VerifyAudit(ctx context.Context) (sandboxmcp.AuditReport, error)

	// AuditInMemory reports whether the record ends with the server.
	AuditInMemory() bool
}

func (s *Server) auditRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/audit", s.audit)
	mux.HandleFunc("GET /v1/audit/verify", func(w http.ResponseWriter, r *http.Request) {
		patient(w)
		rep, err := s.handler.VerifyAudit(r.Context())
		s.reply(w, rep, err)
	})
}

func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	q, err := auditQuery(r.URL.Query())
	if err != nil {
		s.fail(w, err)
		return
	}
	page, err := s.handler.Audit(r.Context(), q)
	s.reply(w, page, err)
}

func auditQuery(form url.Values) (q sandboxmcp.AuditQuery, err error) {
	q.Action = form.Get("action")
	if q.Namespace, err = sandboxmcp.ParseNamespace(form.Get("namespace")); err != nil {
		return q, err
	}
	bad := func(name string) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is %s, which it cannot be", name, sandboxmcp.Quote(form.Get(name)))
	}
	if since := form.Get("since"); since != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			return q, bad("since")
		}
	}
	if limit := form.Get("limit"); limit != "" {
		if q.Limit, err = strconv.Atoi(limit); err != nil {
			return q, bad("limit")
		}
	}
	if after := form.Get("after"); after != "" {
		if q.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return q, bad("after")
		}
	}
	q.OldestFirst, err = flag(form, "oldest_first")
	return q, err
}

// Audit asks for entries of the server's record.
func (c *Client) Audit(ctx context.Context, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	form := url.Values{
		"namespace": {string(q.Namespace)}, "action": {q.Action}, "limit": {strconv.Itoa(q.Limit)},
		"after": {strconv.FormatInt(q.After, 10)}, "oldest_first": {strconv.FormatBool(q.OldestFirst)},
	}
	if !q.Since.IsZero() {
		form.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	var page sandboxmcp.AuditPage
	err := c.call(ctx, question{method: http.MethodGet, path: "/v1/audit", query: form, limit: maxBridge, time: callTimeout, exact: true}, &page)
	return page, err
}

// VerifyAudit has the server check its record.
func (c *Client) VerifyAudit(ctx context.Context) (sandboxmcp.AuditReport, error) {
	var rep sandboxmcp.AuditReport
	err := c.call(ctx, question{method: http.MethodGet, path: "/v1/audit/verify", limit: maxBridge, time: workTimeout}, &rep)
	return rep, err
}
