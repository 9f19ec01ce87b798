package server

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

const maxWaitSeconds = 45

// requestEgress is the row of request_egress.
func requestEgress() tool {
	return tool{
		name:  "request_egress",
		title: "Ask for a domain",
		description: "Asks a person to open a domain to programs and waits for the answer. " +
			"If status is pending, tell the user how_to_approve and call again. denied is final.",
		hints: hints{openWorld: true},
		in: input(
			need("domain", about("string", "api.example.com or *.example.com; not a URL or address")),
			opt("namespace", fallback(typed("string"), `"default"`)),
			opt("reason", about("string", "Why the program needs it; shown to the person as your words")),
			opt("port", atMost(atLeast(about("integer", "Default: 80 and 443"), 1), 65535)),
			opt("wait_seconds", fallback(atMost(atLeast(about("number", "0 to 45"), 0), maxWaitSeconds), strconv.Itoa(maxWaitSeconds))),
		),
		out: output(
			need("domain", typed("string")),
			need("approved", typed("boolean")),
			need("status", about("string", "approved, denied or pending")),
			need("approval_id", typed("string")),
			need("expires_at", typed("string", "null")),
			need("how_to_approve", typed("string")),
		),
		run: (*Server).requestEgress,
	}
}

func (s *Server) requestEgress(ctx context.Context, c *call) (answer, error) {
	ask := sandboxmcp.EgressAsk{
		Domain: c.args.text("domain"), Port: c.args.whole("port"), Reason: c.args.text("reason"),
	}
	wait := time.Duration(c.args.number("wait_seconds") * float64(time.Second))
	if _, given := c.args["wait_seconds"]; !given {
		wait = maxWaitSeconds * time.Second
	}
	_, stop := s.reportProgress(ctx, c.request)
	defer stop()
	if p := c.request.Params; p.RequestState != "" || len(p.InputResponses) > 0 {
		return s.formBack(ctx, c, ask)
	}
	// A form that the person has dismissed is not shown again. A repeated call then waits
	// for an approval on the command line.
	if wait > 0 && canShowForm(c.request) {
		got, err := s.engine.RequestEgress(ctx, c.who, ask)
		if err != nil || got.Status != sandboxmcp.ApprovalPending {
			return answer{body: got}, err
		}
		if !s.forms.dismissed(got.ApprovalID) {
			return s.showForm(ctx, c, ask, got.ApprovalID, wait)
		}
	}
	ask.Wait = wait
	got, err := s.engine.RequestEgress(ctx, c.who, ask)
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
func (s *Server) showForm(ctx context.Context, c *call, ask sandboxmcp.EgressAsk, id string, wait time.Duration) (answer, error) {
	asked, err := s.engine.FindEgress(ctx, c.who, id)
	if err != nil {
		return answer{}, err
	}
	if c.request.ProtocolVersion() < modernVersion {
		return s.elicit(ctx, c, ask, asked, wait)
	}
	state, err := s.forms.issue(c, asked)
	if err != nil {
		return answer{}, err
	}
	return answer{ask: &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{formName: form(asked)}, RequestState: state}}, nil
}

// formBack carries out a person's answer to a form. It accepts only a form that this server
// has issued for the same call and that was not answered before.
func (s *Server) formBack(ctx context.Context, c *call, ask sandboxmcp.EgressAsk) (answer, error) {
	st, err := s.forms.redeem(c)
	if err != nil {
		return answer{}, err
	}
	result, _ := c.request.Params.InputResponses[formName].(*mcp.ElicitResult)
	return s.decide(ctx, c, ask, sandboxmcp.EgressDecision{ID: st.ID, SHA256: st.SHA256}, result)
}

// decide carries out a person's answer r to the question d. If the form was dismissed, or r
// is not a valid answer, the question stays open.
func (s *Server) decide(ctx context.Context, c *call, ask sandboxmcp.EgressAsk, d sandboxmcp.EgressDecision, r *mcp.ElicitResult) (answer, error) {
	person := sandboxmcp.Caller{Namespace: c.who.Namespace, Actor: formActor}
	switch ok := r != nil; {
	case ok && r.Action == "decline":
		d.Deny = true
	case ok && r.Action == "accept" && openFor(r.Content, &d):
	default:
		s.forms.dismiss(d.ID)
		got, err := s.engine.RequestEgress(ctx, c.who, ask)
		return answer{body: got}, err
	}
	got, err := s.engine.DecideEgress(context.WithoutCancel(ctx), person, d)
	answered := []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound, sandboxmcp.CodeEgressDenied, sandboxmcp.CodeInvalidArgument} // answered elsewhere, or expired
	if slices.Contains(answered, sandboxmcp.CodeOf(err)) {
		got, err = s.engine.RequestEgress(ctx, c.who, ask)
	}
	return answer{body: got}, err
}

// elicit asks the person by a call to the client, as protocol versions before modernVersion
// do. It also waits for an answer on the command line; the first answer counts.
func (s *Server) elicit(ctx context.Context, c *call, ask sandboxmcp.EgressAsk, asked sandboxmcp.Approval, wait time.Duration) (answer, error) {
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
		r, err := c.request.Session.Elicit(shown, form(asked))
		if err != nil { // the client cannot, or time is up: wait for the command line
			return
		}
		got, err := s.decide(ctx, c, ask, sandboxmcp.EgressDecision{ID: asked.ID, SHA256: asked.SHA256}, r)
		if err != nil {
			failed <- err
			return
		}
		back <- got
	}()
	waiting, patient := make(chan answer, 1), ask // a copy, because the form's goroutine reads ask
	patient.Wait = wait
	go func() {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("wait panicked", "panic", p)
			}
		}()
		got, err := s.engine.RequestEgress(shown, c.who, patient)
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
	patient.Wait = 0
	got, err := s.engine.RequestEgress(ctx, c.who, patient)
	return answer{body: got}, err
}
