package api_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// call is one call of a verb of the fake server.
type call struct {
	verb   string
	caller sandboxmcp.Caller
	in     []any
}

// service is a fake server. It records each verb with its input and answers with
// filled values, or fails as refuse says. Its methods may be called concurrently.
type service struct {
	mu        sync.Mutex // guards calls and followers
	calls     []call
	followers []*follower

	// These are set before the service is used; each may be nil.
	refuse func(call) error
	run    func(ctx context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) // Execute
	lookup func(l sandboxmcp.Lookup) (sandboxmcp.Result, error)

	questions map[string]string // kind and id of the pending question of each kind; nil: filled answers
}

// pending returns the pending question of a kind.
func (s *service) pending(kind string) []sandboxmcp.Approval {
	if s.questions[kind] == "" {
		return nil
	}
	return []sandboxmcp.Approval{{ID: s.questions[kind], Status: sandboxmcp.ApprovalPending}}
}

var _ sandboxmcp.Service = (*service)(nil)

func (s *service) note(verb string, c sandboxmcp.Caller, in ...any) error {
	was := call{verb, c, in}
	s.mu.Lock()
	s.calls = append(s.calls, was)
	s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse(was)
	}
	return nil
}

// take returns the recorded calls and forgets them.
func (s *service) take() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// reply returns a filled answer, or the zero one beside an error.
func reply[T any](err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return filled[T](), nil
}

func (s *service) Execute(ctx context.Context, c sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	err := s.note("Execute", c, r)
	if s.run != nil {
		return s.run(ctx, r)
	}
	return reply[sandboxmcp.Result](err)
}

func (s *service) Start(_ context.Context, c sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	return reply[sandboxmcp.Result](s.note("Start", c, r))
}

func (s *service) Lookup(_ context.Context, c sandboxmcp.Caller, l sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	err := s.note("Lookup", c, l)
	if s.lookup != nil {
		return s.lookup(l)
	}
	return reply[sandboxmcp.Result](err)
}

func (s *service) Jobs(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Job, error) {
	return reply[[]sandboxmcp.Job](s.note("Jobs", c))
}

func (s *service) Cancel(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID) error {
	return s.note("Cancel", c, id)
}

func (s *service) Output(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, stream string) ([]byte, error) {
	return reply[[]byte](s.note("Output", c, id, stream))
}

func (s *service) ArtifactContent(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error) {
	return reply[sandboxmcp.Artifact](s.note("ArtifactContent", c, id, path))
}

func (s *service) CreateSession(_ context.Context, c sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	return reply[sandboxmcp.Session](s.note("CreateSession", c, spec))
}

func (s *service) TerminateSession(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	return s.note("TerminateSession", c, id)
}

func (s *service) CloseSession(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	return s.note("CloseSession", c, id)
}

func (s *service) Sessions(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	return reply[[]sandboxmcp.Session](s.note("Sessions", c))
}

func (s *service) Inspect(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	return reply[sandboxmcp.State](s.note("Inspect", c, id))
}

func (s *service) Bridge(_ context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	return reply[sandboxmcp.Bridged](s.note("Bridge", c, b))
}

func (s *service) Upload(_ context.Context, c sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	out, err := reply[uploadAnswer](s.note("Upload", c, u))
	return out.ID, out.Path, err
}

func (s *service) SessionEntries(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, deep bool) ([]sandboxmcp.SessionEntry, error) {
	return reply[[]sandboxmcp.SessionEntry](s.note("SessionEntries", c, id, deep))
}

func (s *service) SessionFiles(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	return reply[[]sandboxmcp.SessionFile](s.note("SessionFiles", c, id))
}

func (s *service) ReadFile(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	out, err := reply[fileAnswer](s.note("ReadFile", c, id, path, limit))
	return out.File, out.Content, err
}

func (s *service) RemoveFile(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string) error {
	return s.note("RemoveFile", c, id, path)
}

func (s *service) RequestEgress(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.AccessAnswer, error) {
	return reply[sandboxmcp.AccessAnswer](s.note("RequestEgress", c, ask))
}

func (s *service) FindApproval(_ context.Context, c sandboxmcp.Caller, id string) (sandboxmcp.Approval, error) {
	subjects := map[string]sandboxmcp.Subject{"egress": {Domain: "a.example"}, "host": {Pattern: "ls"}, "package": {Package: "python:six"}}
	for kind, known := range s.questions {
		if known == id {
			return sandboxmcp.Approval{ID: id, Subject: subjects[kind], Status: sandboxmcp.ApprovalDenied}, s.note("FindApproval", c, id)
		}
	}
	return reply[sandboxmcp.Approval](s.note("FindApproval", c, id))
}

func (s *service) DecideEgress(_ context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return reply[sandboxmcp.AccessAnswer](s.note("DecideEgress", c, d))
}

func (s *service) RevokeEgress(_ context.Context, c sandboxmcp.Caller, domain string) (sandboxmcp.AccessRevoked, error) {
	return reply[sandboxmcp.AccessRevoked](s.note("RevokeEgress", c, domain))
}

func (s *service) Egress(_ context.Context, c sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	if s.questions != nil {
		return sandboxmcp.AccessList{Pending: s.pending("egress")}, nil
	}
	return reply[sandboxmcp.AccessList](s.note("Egress", c))
}

func (s *service) AddSecret(_ context.Context, c sandboxmcp.Caller, add sandboxmcp.SecretSpec) error {
	return s.note("AddSecret", c, add)
}

func (s *service) DeleteSecret(_ context.Context, c sandboxmcp.Caller, key string) error {
	return s.note("DeleteSecret", c, key)
}

func (s *service) Secrets(_ context.Context, c sandboxmcp.Caller) (sandboxmcp.VaultList, error) {
	return reply[sandboxmcp.VaultList](s.note("Secrets", c))
}

func (s *service) Validate(_ context.Context, c sandboxmcp.Caller, check sandboxmcp.CodeCheck) (sandboxmcp.CodeReport, error) {
	return reply[sandboxmcp.CodeReport](s.note("Validate", c, check))
}

func (s *service) BrowsePage(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.BrowserAsk) (sandboxmcp.BrowserPage, error) {
	return reply[sandboxmcp.BrowserPage](s.note("BrowsePage", c, ask))
}

func (s *service) Install(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.InstallAsk) (sandboxmcp.Installation, error) {
	return reply[sandboxmcp.Installation](s.note("Install", c, ask))
}

func (s *service) PackageSets(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.PackageSet, error) {
	return reply[[]sandboxmcp.PackageSet](s.note("PackageSets", c))
}

func (s *service) RemovePackages(_ context.Context, c sandboxmcp.Caller, name string) ([]sandboxmcp.PackageSet, error) {
	return reply[[]sandboxmcp.PackageSet](s.note("RemovePackages", c, name))
}

func (s *service) PackageAccess(_ context.Context, c sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	if s.questions != nil {
		return sandboxmcp.AccessList{Pending: s.pending("package")}, nil
	}
	return reply[sandboxmcp.AccessList](s.note("PackageAccess", c))
}

func (s *service) DecidePackage(_ context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return reply[sandboxmcp.AccessAnswer](s.note("DecidePackage", c, d))
}

func (s *service) RevokePackage(_ context.Context, c sandboxmcp.Caller, name string) (sandboxmcp.AccessRevoked, error) {
	return reply[sandboxmcp.AccessRevoked](s.note("RevokePackage", c, name))
}

func (s *service) FetchPage(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	return reply[sandboxmcp.Page](s.note("FetchPage", c, ask))
}

func (s *service) SearchWeb(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.SearchAsk) (sandboxmcp.SearchResults, error) {
	return reply[sandboxmcp.SearchResults](s.note("SearchWeb", c, ask))
}

func (s *service) SetLimits(_ context.Context, c sandboxmcp.Caller, change sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	return reply[sandboxmcp.LimitsChanged](s.note("SetLimits", c, change))
}

func (s *service) Audit(_ context.Context, c sandboxmcp.Caller, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	return reply[sandboxmcp.AuditPage](s.note("Audit", c, q))
}

func (s *service) VerifyAudit(_ context.Context, c sandboxmcp.Caller) (sandboxmcp.AuditReport, error) {
	return reply[sandboxmcp.AuditReport](s.note("VerifyAudit", c))
}

func (s *service) Events(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Event, error) {
	return reply[[]sandboxmcp.Event](s.note("Events", c))
}

func (s *service) Runtimes(ctx context.Context) (sandboxmcp.Runtimes, error) {
	all, err := reply[sandboxmcp.Runtimes](s.note("Runtimes", sandboxmcp.Caller{}))
	if ctx.Err() != nil {
		return sandboxmcp.Runtimes{}, ctx.Err()
	}
	return all, err
}

func (s *service) Stats(context.Context) (sandboxmcp.Stats, error) {
	return reply[sandboxmcp.Stats](s.note("Stats", sandboxmcp.Caller{}))
}

// uploadAnswer and fileAnswer hold answers of several values.
type uploadAnswer struct {
	ID   sandboxmcp.SessionID
	Path string
}

type fileAnswer struct {
	File    sandboxmcp.SessionFile
	Content []byte
}

// follower is a reader of events. Its channel holds 64 of them.
type follower struct {
	mu     sync.Mutex // guards what follows
	events chan sandboxmcp.Event
	closed bool
}

// tell hands an event to the follower, and reports whether there was room.
func (f *follower) tell(e sandboxmcp.Event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	select {
	case f.events <- e:
		return true
	default:
		return false
	}
}

func (f *follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	close(f.events)
}

// Follow returns a channel that begins with a filled event if recent is set.
func (s *service) Follow(ctx context.Context, c sandboxmcp.Caller, recent bool) (<-chan sandboxmcp.Event, error) {
	if err := s.note("Follow", c, recent); err != nil {
		return nil, err
	}
	f := &follower{events: make(chan sandboxmcp.Event, 64)}
	if recent {
		f.tell(filled[sandboxmcp.Event]())
	}
	s.mu.Lock()
	s.followers = append(s.followers, f)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		s.followers = slices.DeleteFunc(s.followers, func(have *follower) bool { return have == f })
		s.mu.Unlock()
		f.close()
	})
	return f.events, nil
}

// following returns the present followers.
func (s *service) following() []*follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.followers)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// owner is the caller that the tests act for.
func owner() sandboxmcp.Caller { return sandboxmcp.Caller{Namespace: "team", Actor: api.Actor} }

// listen opens a server with a fake service in a directory.
func listen(t *testing.T, dir string) (*api.Server, *service) {
	t.Helper()
	s := &service{}
	return serve(t, api.Config{StateDir: dir, Service: s}), s
}

func serve(t *testing.T, c api.Config) *api.Server {
	t.Helper()
	c.Logger = quiet()
	server, err := api.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// peers returns the servers of a directory, and fails unless there are so many.
func peers(t *testing.T, dir string, want int) []*api.Client {
	t.Helper()
	got, err := api.Peers(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != want {
		t.Fatalf("got %d peers, want %d", len(got), want)
	}
	return got
}

// pair opens a server with a fake service, and a client of it.
func pair(t *testing.T) (*api.Client, *service, *api.Server) {
	t.Helper()
	dir := t.TempDir()
	server, s := listen(t, dir)
	return peers(t, dir, 1)[0], s, server
}
