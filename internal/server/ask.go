package server

import (
	"context"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

const maxWaitSeconds = 45

// question is what a tool asks a person. Its functions may be called concurrently.
type question struct {
	ask    func(ctx context.Context, wait time.Duration) (sandboxmcp.AccessAnswer, error)       // asks, and waits for an answer
	find   func(ctx context.Context, id string) (a sandboxmcp.Approval, text string, err error) // text is what a form says
	decide func(ctx context.Context, person sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error)
	denied sandboxmcp.Code   // of a decision on a question that was denied meanwhile
	form   *mcp.ElicitParams // the form that is shown; set by showForm
}

// askPerson asks a person, by a form if the client can show one and its answer counts.
func (s *Server) askPerson(ctx context.Context, c *call, q question) (answer, error) {
	wait := time.Duration(c.args.number("wait_seconds") * float64(time.Second))
	if _, given := c.args["wait_seconds"]; !given {
		wait = maxWaitSeconds * time.Second
	}
	_, stop := s.reportProgress(ctx, c.request, nil)
	defer stop()
	if p := c.request.Params; p.RequestState != "" || len(p.InputResponses) > 0 {
		return s.formBack(ctx, c, q)
	}
	// A form that the person has dismissed is not shown again. A repeated call then waits
	// for an approval on the command line.
	if wait > 0 && c.decides && canShowForm(c.request) {
		got, err := q.ask(ctx, 0)
		if err != nil || got.Status != sandboxmcp.ApprovalPending {
			return answer{body: got}, err
		}
		if !s.forms.dismissed(got.ApprovalID) {
			return s.showForm(ctx, c, q, got.ApprovalID, wait)
		}
	}
	got, err := q.ask(ctx, wait)
	return answer{body: got}, err
}

// canShowForm reports whether the client can show forms to a person.
func canShowForm(r *mcp.CallToolRequest) bool {
	c := r.ClientCapabilities()
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// modernVersion is the first protocol version in which a server does not call its client.
const modernVersion = "2026-07-28"

// showForm asks the person at the client, in the way that the client's protocol version
// defines.
func (s *Server) showForm(ctx context.Context, c *call, q question, id string, wait time.Duration) (answer, error) {
	asked, text, err := q.find(ctx, id)
	if err != nil {
		return answer{}, err
	}
	q.form = form(asked, text)
	if c.request.ProtocolVersion() < modernVersion {
		return s.elicit(ctx, c, q, sandboxmcp.AccessDecision{ID: asked.ID, SHA256: asked.SHA256}, wait)
	}
	state, err := s.forms.issue(c, asked)
	if err != nil {
		return answer{}, err
	}
	return answer{ask: &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{formName: q.form}, RequestState: state}}, nil
}

// formBack carries out a person's answer to a form. It accepts only a form that this server
// has issued for the same call and that was not answered before.
func (s *Server) formBack(ctx context.Context, c *call, q question) (answer, error) {
	st, err := s.forms.redeem(c)
	if err != nil {
		return answer{}, err
	}
	result, _ := c.request.Params.InputResponses[formName].(*mcp.ElicitResult)
	return s.decide(ctx, c, q, sandboxmcp.AccessDecision{ID: st.ID, SHA256: st.SHA256}, result)
}

// decide carries out a person's answer r to the question d. If the form was dismissed, or r
// is not a valid answer, the question stays open.
func (s *Server) decide(ctx context.Context, c *call, q question, d sandboxmcp.AccessDecision, r *mcp.ElicitResult) (answer, error) {
	person := sandboxmcp.Caller{Namespace: c.who.Namespace, Actor: s.formActor(c)}
	switch ok := r != nil; {
	case ok && r.Action == "decline":
		d.Deny = true
	case ok && r.Action == "accept" && openFor(r.Content, &d):
	default:
		s.forms.dismiss(d.ID)
		got, err := q.ask(ctx, 0)
		return answer{body: got}, err
	}
	got, err := q.decide(context.WithoutCancel(ctx), person, d)
	answered := []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound, q.denied, sandboxmcp.CodeInvalidArgument} // answered elsewhere, or expired
	if slices.Contains(answered, sandboxmcp.CodeOf(err)) {
		got, err = q.ask(ctx, 0)
	}
	return answer{body: got}, err
}

// elicit asks the person by a call to the client, as protocol versions before modernVersion
// do. It also waits for an answer on the command line; the first answer counts.
func (s *Server) elicit(ctx context.Context, c *call, q question, d sandboxmcp.AccessDecision, wait time.Duration) (answer, error) {
	shown, hide := context.WithTimeout(ctx, wait)
	defer hide()
	back := make(chan answer, 1)
	failed := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("form panicked", "panic", p)
			}
		}()
		r, err := c.request.Session.Elicit(shown, q.form)
		if err != nil { // the client cannot, or time is up: wait for the command line
			return
		}
		got, err := s.decide(ctx, c, q, d, r)
		if err != nil {
			failed <- err
			return
		}
		back <- got
	}()
	waiting := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("wait panicked", "panic", p)
			}
		}()
		got, err := q.ask(shown, wait)
		switch {
		case err == nil:
			waiting <- answer{body: got}
		case shown.Err() == nil || ctx.Err() != nil:
			failed <- err
		}
	}()
	select {
	case a := <-back:
		return a, nil
	case a := <-waiting:
		return a, nil
	case err := <-failed:
		return answer{}, err
	case <-shown.Done():
	}
	got, err := q.ask(ctx, 0)
	return answer{body: got}, err
}
