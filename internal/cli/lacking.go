package cli

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// lacking is an engine without sessions: every call for one is refused.
type lacking struct{ *engine.Engine }

func errLacking() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "this version has no sessions")
}

func (lacking) CreateSession(context.Context, sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	return sandboxmcp.Session{}, errLacking()
}

func (lacking) TerminateSession(_ context.Context, _ sandboxmcp.Namespace, id sandboxmcp.SessionID, _ string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "there is no session %s", id)
}

func (lacking) Sessions(context.Context, sandboxmcp.Namespace) ([]sandboxmcp.Session, error) {
	return nil, nil
}

func (lacking) Upload(context.Context, sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	return "", "", errLacking()
}

func (lacking) SessionFiles(context.Context, sandboxmcp.Namespace, sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	return nil, errLacking()
}

func (lacking) ReadFile(context.Context, sandboxmcp.Namespace, sandboxmcp.SessionID, string, int64) (sandboxmcp.SessionFile, []byte, error) {
	return sandboxmcp.SessionFile{}, nil, errLacking()
}

func (lacking) RemoveFile(context.Context, sandboxmcp.Namespace, sandboxmcp.SessionID, string, string) error {
	return errLacking()
}

func (lacking) Bridge(context.Context, sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	return sandboxmcp.Bridged{}, errLacking()
}

func (lacking) Inspect(_ context.Context, ns sandboxmcp.Namespace, _ sandboxmcp.SessionID) (sandboxmcp.State, error) {
	return sandboxmcp.State{Namespace: ns}, nil
}
