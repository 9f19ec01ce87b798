package server

import (
	"context"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	maxCompletions = 100 // values of an answer, which the protocol bounds
	recentRuns     = 200 // entries of the audit record that are searched for ids of runs
)

// complete answers completion/complete: ids and paths of the caller's own runs and sessions,
// for the arguments of the prompt and of the resource templates.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	id, err := s.identityOf(ctx, req.Extra)
	if err != nil {
		return nil, s.protocolError(err)
	}
	who, err := id.Caller("")
	if err != nil {
		return nil, s.protocolError(err)
	}
	p := req.Params
	var given map[string]string
	if p.Context != nil {
		given = p.Context.Arguments
	}
	var values []string
	switch ref := p.Ref; {
	case ref.Type == "ref/prompt" && ref.Name == promptName && s.prompts:
		if p.Argument.Name == "session_id" {
			values, err = s.sessionIDs(ctx, who)
		}
	case ref.Type == "ref/resource" && ref.URI == runTemplate:
		values, err = s.completeRun(ctx, who, p.Argument.Name)
	case ref.Type == "ref/resource" && ref.URI == artifactTemplate:
		values, err = s.completeArtifact(ctx, who, p.Argument.Name, given["id"])
	default:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the prompt or resource template is not known"}
	}
	if err != nil {
		return nil, s.protocolError(err)
	}
	values = slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, p.Argument.Value) })
	total := len(values)
	if values = values[:min(total, maxCompletions)]; values == nil {
		values = []string{}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: total, HasMore: total > len(values)}}, nil
}

// protocolError returns a failure as an error of JSON-RPC.
func (s *Server) protocolError(err error) error {
	e := s.failure("completion/complete", err)
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: string(e.Code) + ": " + e.Message}
}

func (s *Server) completeRun(ctx context.Context, who sandboxmcp.Caller, argument string) ([]string, error) {
	switch argument {
	case "part":
		return []string{"stdout", "stderr", "result", "results"}, nil
	case "request_id":
		return s.runIDs(ctx, who)
	}
	return nil, nil
}

func (s *Server) completeArtifact(ctx context.Context, who sandboxmcp.Caller, argument, id string) ([]string, error) {
	switch {
	case argument == "id":
		sessions, err := s.sessionIDs(ctx, who)
		if err != nil {
			return nil, err
		}
		runs, err := s.runIDs(ctx, who)
		return append(sessions, runs...), err
	case argument != "path" || id == "":
		return nil, nil
	}
	session, err := sandboxmcp.ParseSessionID(id)
	if err != nil {
		return nil, nil //nolint:nilerr // an id that cannot be has no files
	}
	entries, err := s.engine.SessionEntries(ctx, who, session, true)
	if err != nil {
		return nil, nil //nolint:nilerr // a session that is not there has no files
	}
	var paths []string
	for _, e := range entries {
		if e.Type == sandboxmcp.EntryFile {
			paths = append(paths, strings.TrimPrefix(e.Path, workDir+"/"))
		}
	}
	return paths, nil
}

// sessionIDs lists the caller's live sessions.
func (s *Server) sessionIDs(ctx context.Context, who sandboxmcp.Caller) ([]string, error) {
	list, err := s.engine.Sessions(ctx, who)
	ids := make([]string, 0, len(list))
	for _, one := range list {
		ids = append(ids, string(one.ID))
	}
	slices.Sort(ids)
	return ids, err
}

// runIDs lists the caller's latest runs, newest first.
func (s *Server) runIDs(ctx context.Context, who sandboxmcp.Caller) ([]string, error) {
	page, err := s.engine.Audit(ctx, who, sandboxmcp.AuditQuery{Action: "execute", Limit: recentRuns})
	var ids []string
	for _, e := range page.Entries {
		if id := string(e.RequestID); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}
