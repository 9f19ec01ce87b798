package server_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// fakeGate is a gate with one question, which a person may answer.
type fakeGate struct {
	gateMu  sync.Mutex
	asks    []sandboxmcp.EgressAsk
	decided []sandboxmcp.AccessDecision
	persons []sandboxmcp.Caller       // who decided
	status  sandboxmcp.ApprovalStatus // of the question; empty: nobody has asked
	changed chan struct{}
}

const question = "apr_question"

func newFakeGate() fakeGate { return fakeGate{changed: make(chan struct{}, 8)} }

func (f *fakeGate) answerLocked() sandboxmcp.AccessAnswer {
	a := sandboxmcp.AccessAnswer{Subject: sandboxmcp.Subject{Domain: f.asks[0].Domain}, Status: f.status, Approved: f.status == sandboxmcp.ApprovalApproved, ApprovalID: question}
	if f.status == sandboxmcp.ApprovalPending {
		a.HowToApprove = "sandboxmcp egress approve " + question
	}
	return a
}

func (f *fakeGate) RequestEgress(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.AccessAnswer, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	if _, err := sandboxmcp.ParseDomain(ask.Domain); err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	return f.request(ctx, ask)
}

func (f *fakeGate) request(ctx context.Context, ask sandboxmcp.EgressAsk) (sandboxmcp.AccessAnswer, error) {
	f.gateMu.Lock()
	f.asks = append(f.asks, ask)
	if f.status == "" {
		f.status = sandboxmcp.ApprovalPending
	}
	a := f.answerLocked()
	f.gateMu.Unlock()
	if a.Status != sandboxmcp.ApprovalPending || ask.Wait == 0 {
		return a, nil
	}
	t := time.NewTimer(ask.Wait)
	defer t.Stop()
	select {
	case <-f.changed:
	case <-t.C:
	case <-ctx.Done():
		return a, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "cancelled")
	}
	f.gateMu.Lock()
	defer f.gateMu.Unlock()
	return f.answerLocked(), nil
}

func (f *fakeGate) FindApproval(_ context.Context, c sandboxmcp.Caller, id string) (sandboxmcp.Approval, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Approval{}, err
	}
	if id != question {
		return sandboxmcp.Approval{}, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no approval")
	}
	f.gateMu.Lock()
	defer f.gateMu.Unlock()
	return sandboxmcp.Approval{
		ID: id, Subject: sandboxmcp.Subject{Domain: f.asks[0].Domain}, Reason: `"say \"yes\"\nnow"`, Namespace: "team", Status: f.status, SHA256: "sum-of-question",
		ExpiresAt: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC),
	}, nil
}

func (f *fakeGate) DecideEgress(_ context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	f.gateMu.Lock()
	defer f.gateMu.Unlock()
	f.decided, f.persons = append(f.decided, d), append(f.persons, c)
	if f.status != sandboxmcp.ApprovalPending {
		return sandboxmcp.AccessAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "it was denied")
	}
	f.setLocked(d.Deny)
	return f.answerLocked(), nil
}

func (f *fakeGate) setLocked(deny bool) {
	f.status = sandboxmcp.ApprovalApproved
	if deny {
		f.status = sandboxmcp.ApprovalDenied
	}
	f.changed <- struct{}{}
}

// terminal is a person who answers elsewhere.
func (f *fakeGate) terminal(deny bool) {
	f.gateMu.Lock()
	defer f.gateMu.Unlock()
	f.setLocked(deny)
}

func (f *fakeGate) asksSoFar() []sandboxmcp.EgressAsk {
	f.gateMu.Lock()
	defer f.gateMu.Unlock()
	return slices.Clone(f.asks)
}

func (f *fakeGate) decisions() []sandboxmcp.AccessDecision {
	f.gateMu.Lock()
	defer f.gateMu.Unlock()
	return slices.Clone(f.decided)
}
