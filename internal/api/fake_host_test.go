package api_test

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

func (s *service) ExecHost(_ context.Context, c sandboxmcp.Caller, cmd sandboxmcp.HostCommand) (sandboxmcp.HostOutput, error) {
	return reply[sandboxmcp.HostOutput](s.note("ExecHost", c, cmd))
}

func (s *service) RequestHostAccess(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.HostAsk) (sandboxmcp.AccessAnswer, error) {
	return reply[sandboxmcp.AccessAnswer](s.note("RequestHostAccess", c, ask))
}

func (s *service) DecideHostAccess(_ context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return reply[sandboxmcp.AccessAnswer](s.note("DecideHostAccess", c, d))
}

func (s *service) RevokeHostAccess(_ context.Context, c sandboxmcp.Caller, pattern string) (sandboxmcp.AccessRevoked, error) {
	return reply[sandboxmcp.AccessRevoked](s.note("RevokeHostAccess", c, pattern))
}

func (s *service) HostAccess(_ context.Context, c sandboxmcp.Caller) (sandboxmcp.HostAccess, error) {
	if s.questions != nil {
		var l sandboxmcp.HostAccess
		for _, a := range s.pending("host") {
			l.Pending = append(l.Pending, sandboxmcp.HostApproval{Approval: a, Warning: "it is dangerous"})
		}
		return l, nil
	}
	return reply[sandboxmcp.HostAccess](s.note("HostAccess", c))
}

func (s *service) ReadHostFile(_ context.Context, c sandboxmcp.Caller, r sandboxmcp.HostRead) (sandboxmcp.HostContent, error) {
	return reply[sandboxmcp.HostContent](s.note("ReadHostFile", c, r))
}

func (s *service) WriteHostFile(_ context.Context, c sandboxmcp.Caller, w sandboxmcp.HostWrite) (sandboxmcp.HostWritten, error) {
	return reply[sandboxmcp.HostWritten](s.note("WriteHostFile", c, w))
}

func (s *service) ListHostFiles(_ context.Context, c sandboxmcp.Caller, path string) (sandboxmcp.HostListing, error) {
	return reply[sandboxmcp.HostListing](s.note("ListHostFiles", c, path))
}

func (s *service) CopyHostFile(_ context.Context, c sandboxmcp.Caller, cp sandboxmcp.HostCopy) (sandboxmcp.HostCopied, error) {
	return reply[sandboxmcp.HostCopied](s.note("CopyHostFile", c, cp))
}
