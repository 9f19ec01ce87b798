package api

import (
	"context"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Inputs of routes.
type (
	none struct{}
	// about is the id of an object on the server.
	about[ID any] struct {
		ID ID `path:"id"`
	}
	// file is a path in a request or session.
	file[ID any] struct {
		ID   ID     `path:"id"`
		Path string `query:"path"`
	}
	// body sends a type of package sandboxmcp as JSON.
	body[T any] struct {
		Value T `body:"json"`
	}
	lookupIn struct {
		ID      sandboxmcp.RequestID `path:"id"`
		Wait    time.Duration        `query:"wait"`
		Cancel  bool                 `query:"cancel"`
		Content bool                 `query:"content"`
	}
	outputIn struct {
		ID     sandboxmcp.RequestID `path:"id"`
		Stream string               `path:"stream"`
	}
	endSessionIn struct {
		ID     sandboxmcp.SessionID `path:"id"`
		IfIdle bool                 `query:"if_idle"`
	}
	inspectIn struct {
		ID sandboxmcp.SessionID `query:"session_id"`
	}
	readFileIn struct {
		ID    sandboxmcp.SessionID `path:"id"`
		Path  string               `query:"path"`
		Limit int64                `query:"limit"`
	}
	entriesIn struct {
		ID   sandboxmcp.SessionID `path:"id"`
		Deep bool                 `query:"deep"`
	}
	packageIn struct {
		Name string `query:"package"`
	}
	secretIn struct {
		Secret secretBody `body:"secret"`
	}
	keyIn struct {
		Key string `path:"key"`
	}
	auditIn struct {
		Action      string    `query:"action"`
		Since       time.Time `query:"since"`
		After       int64     `query:"after"`
		Limit       int       `query:"limit"`
		OldestFirst bool      `query:"oldest_first"`
	}
	followIn struct {
		Recent      bool   `query:"recent" doc:"begin with the latest events"`
		LastEventID string `header:"Last-Event-ID" doc:"id of the last event that the client got"`
	}
)

// secretBody carries a [sandboxmcp.SecretSpec], whose value cannot be encoded as JSON
// itself.
type secretBody struct {
	Key   string        `json:"key"`
	Value []byte        `json:"value_base64"`
	TTL   time.Duration `json:"ttl_ns,omitempty"`
}

// Outputs of routes that are not types of package sandboxmcp.
type (
	done struct {
		Done bool `json:"done"`
	}
	outputAnswer struct {
		Content []byte `json:"content_base64"`
	}
	jobList struct {
		Jobs []sandboxmcp.Job `json:"jobs"`
	}
	sessionList struct {
		Sessions []sandboxmcp.Session `json:"sessions"`
	}
	fileList struct {
		Artifacts []sandboxmcp.SessionFile `json:"artifacts"`
	}
	entryList struct {
		Entries []sandboxmcp.SessionEntry `json:"entries"`
	}
	fileContent struct {
		sandboxmcp.SessionFile
		Content []byte `json:"content_base64"`
	}
	uploaded struct {
		SessionID sandboxmcp.SessionID `json:"session_id"`
		Path      string               `json:"path"`
	}
	setList struct {
		Sets []sandboxmcp.PackageSet `json:"sets"`
	}
	eventList struct {
		Events []sandboxmcp.Event `json:"events"`
	}
)

// The table of routes. Those that stream (execute, upload, follow) are in stream.go and
// upload.go.
var (
	lookupRoute = route[lookupIn, sandboxmcp.Result]{
		method: "GET", path: "/v1/requests/{id}", answer: maxResult, slow: true, wait: func(in lookupIn) time.Duration { return in.Wait }, do: lookup,
	}
	jobsRoute = route[none, jobList]{
		method: "GET", path: "/v1/jobs",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (jobList, error) {
			all, err := s.Jobs(ctx, c)
			return jobList{append([]sandboxmcp.Job{}, all...)}, err
		},
	}
	cancelRoute = route[about[sandboxmcp.RequestID], done]{
		method: "DELETE", path: "/v1/requests/{id}",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in about[sandboxmcp.RequestID]) (done, error) {
			return done{true}, s.Cancel(ctx, c, in.ID)
		},
	}
	outputRoute = route[outputIn, outputAnswer]{
		method: "GET", path: "/v1/requests/{id}/output/{stream}", answer: maxResult, slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in outputIn) (outputAnswer, error) {
			data, err := s.Output(ctx, c, in.ID, in.Stream)
			return outputAnswer{data}, err
		},
	}
	artifactRoute = route[file[sandboxmcp.RequestID], sandboxmcp.Artifact]{
		method: "GET", path: "/v1/requests/{id}/artifact", answer: maxResult, slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in file[sandboxmcp.RequestID]) (sandboxmcp.Artifact, error) {
			return s.ArtifactContent(ctx, c, in.ID, in.Path)
		},
	}
	startRoute = route[body[sandboxmcp.Request], sandboxmcp.Result]{
		method: "POST", path: "/v1/execute/async", body: maxProgram, slow: true, do: withBody(sandboxmcp.Service.Start),
	}
	sessionsRoute = route[none, sessionList]{
		method: "GET", path: "/v1/sessions",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (sessionList, error) {
			all, err := s.Sessions(ctx, c)
			return sessionList{append([]sandboxmcp.Session{}, all...)}, err
		},
	}
	sessionRoute       = route[about[sandboxmcp.SessionID], sandboxmcp.Session]{method: "GET", path: "/v1/sessions/{id}", do: findSession}
	createSessionRoute = route[body[sandboxmcp.SessionSpec], sandboxmcp.Session]{
		method: "POST", path: "/v1/sessions", slow: true, do: withBody(sandboxmcp.Service.CreateSession),
	}
	endSessionRoute = route[endSessionIn, done]{
		method: "DELETE", path: "/v1/sessions/{id}", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in endSessionIn) (done, error) {
			if in.IfIdle {
				return done{true}, s.CloseSession(ctx, c, in.ID)
			}
			return done{true}, s.TerminateSession(ctx, c, in.ID)
		},
	}
	inspectRoute = route[inspectIn, sandboxmcp.State]{
		method: "GET", path: "/v1/inspect",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in inspectIn) (sandboxmcp.State, error) {
			return s.Inspect(ctx, c, in.ID)
		},
	}
	bridgeRoute = route[body[sandboxmcp.Bridge], sandboxmcp.Bridged]{
		method: "POST", path: "/v1/bridge", body: maxBridge, answer: maxBridge, slow: true, do: withBody(sandboxmcp.Service.Bridge),
	}
	filesRoute = route[about[sandboxmcp.SessionID], fileList]{
		method: "GET", path: "/v1/sessions/{id}/files", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in about[sandboxmcp.SessionID]) (fileList, error) {
			files, err := s.SessionFiles(ctx, c, in.ID)
			return fileList{append([]sandboxmcp.SessionFile{}, files...)}, err
		},
	}
	entriesRoute = route[entriesIn, entryList]{
		method: "GET", path: "/v1/sessions/{id}/entries", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in entriesIn) (entryList, error) {
			all, err := s.SessionEntries(ctx, c, in.ID, in.Deep)
			return entryList{append([]sandboxmcp.SessionEntry{}, all...)}, err
		},
	}
	readFileRoute = route[readFileIn, fileContent]{
		method: "GET", path: "/v1/sessions/{id}/file", answer: maxResponse + 2*MaxFile, slow: true, do: readFile,
	}
	removeFileRoute = route[file[sandboxmcp.SessionID], done]{
		method: "DELETE", path: "/v1/sessions/{id}/file",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in file[sandboxmcp.SessionID]) (done, error) {
			return done{true}, s.RemoveFile(ctx, c, in.ID, in.Path)
		},
	}
	askEgressRoute = route[body[sandboxmcp.EgressAsk], sandboxmcp.AccessAnswer]{
		method: "POST", path: "/v1/egress/requests", slow: true, wait: func(in body[sandboxmcp.EgressAsk]) time.Duration { return in.Value.Wait }, do: withBody(sandboxmcp.Service.RequestEgress),
	}
	findApprovalRoute = route[about[string], sandboxmcp.Approval]{
		method: "GET", path: "/v1/approvals/{id}", do: withID(sandboxmcp.Service.FindApproval),
	}
	secretsRoute = route[none, sandboxmcp.VaultList]{
		method: "GET", path: "/v1/vault", do: alone(sandboxmcp.Service.Secrets),
	}
	addSecretRoute = route[secretIn, done]{
		method: "POST", path: "/v1/vault", body: maxSecret, finish: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in secretIn) (done, error) {
			return done{true}, s.AddSecret(ctx, c, sandboxmcp.SecretSpec{Key: in.Secret.Key, Value: sandboxmcp.NewSecret(string(in.Secret.Value)), TTL: in.Secret.TTL})
		},
	}
	deleteSecretRoute = route[keyIn, done]{
		method: "DELETE", path: "/v1/vault/{key}", finish: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in keyIn) (done, error) {
			return done{true}, s.DeleteSecret(ctx, c, in.Key)
		},
	}
	validateRoute = route[body[sandboxmcp.CodeCheck], sandboxmcp.CodeReport]{
		method: "POST", path: "/v1/validate", body: maxProgram, answer: maxResult, slow: true, do: withBody(sandboxmcp.Service.Validate),
	}
	installRoute = route[body[sandboxmcp.InstallAsk], sandboxmcp.Installation]{
		method: "POST", path: "/v1/install", slow: true, wait: func(body[sandboxmcp.InstallAsk]) time.Duration { return installTime }, do: withBody(sandboxmcp.Service.Install),
	}
	packagesRoute = route[none, setList]{
		method: "GET", path: "/v1/packages",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (setList, error) {
			all, err := s.PackageSets(ctx, c)
			return setList{append([]sandboxmcp.PackageSet{}, all...)}, err
		},
	}
	removePackagesRoute = route[packageIn, setList]{
		method: "DELETE", path: "/v1/packages",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in packageIn) (setList, error) {
			gone, err := s.RemovePackages(ctx, c, in.Name)
			return setList{append([]sandboxmcp.PackageSet{}, gone...)}, err
		},
	}
	fetchPageRoute = route[body[sandboxmcp.PageAsk], sandboxmcp.Page]{
		method: "POST", path: "/v1/web/page", answer: maxBridge, slow: true, do: withBody(sandboxmcp.Service.FetchPage),
	}
	browsePageRoute = route[body[sandboxmcp.BrowserAsk], sandboxmcp.BrowserPage]{
		method: "POST", path: "/v1/web/browser", answer: maxBridge, slow: true, do: withBody(sandboxmcp.Service.BrowsePage),
		wait: func(in body[sandboxmcp.BrowserAsk]) time.Duration {
			return time.Duration(in.Value.TimeoutMS) * time.Millisecond
		},
	}
	searchWebRoute = route[body[sandboxmcp.SearchAsk], sandboxmcp.SearchResults]{
		method: "POST", path: "/v1/web/search", slow: true, do: withBody(sandboxmcp.Service.SearchWeb),
	}
	limitsRoute = route[body[sandboxmcp.LimitsChange], sandboxmcp.LimitsChanged]{
		method: "POST", path: "/v1/limits", finish: true, do: withBody(sandboxmcp.Service.SetLimits),
	}
	auditRoute = route[auditIn, sandboxmcp.AuditPage]{
		method: "GET", path: "/v1/audit", answer: maxBridge,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in auditIn) (sandboxmcp.AuditPage, error) {
			return s.Audit(ctx, c, sandboxmcp.AuditQuery(in))
		},
	}
	verifyAuditRoute = route[none, sandboxmcp.AuditReport]{
		method: "GET", path: "/v1/audit/verify", answer: maxBridge, slow: true, do: alone(sandboxmcp.Service.VerifyAudit),
	}
	eventsRoute = route[none, eventList]{
		method: "GET", path: "/v1/events/recent",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (eventList, error) {
			all, err := s.Events(ctx, c)
			return eventList{append([]sandboxmcp.Event{}, all...)}, err
		},
	}
	runtimesRoute = route[none, sandboxmcp.Runtimes]{
		method: "GET", path: "/v1/runtimes", slow: true, do: ofServer(sandboxmcp.Service.Runtimes),
	}
	statsRoute = route[none, sandboxmcp.Stats]{
		method: "GET", path: "/v1/stats", do: ofServer(sandboxmcp.Service.Stats),
	}
)

// installTime is how much longer than other slow calls an installation may take.
const installTime = 10 * time.Minute

// endpoints returns all routes, for the server. Those over HTTP come in the order of documents.
func endpoints() []endpoint { return append(localEndpoints(), restEndpoints()...) }

// localEndpoints returns the routes of the unix socket.
func localEndpoints() []endpoint {
	return []endpoint{
		executeRoute{},
		followRoute{followPath},
		uploadRoute{},
		lookupRoute, jobsRoute, cancelRoute, outputRoute, artifactRoute, startRoute,
		sessionsRoute, sessionRoute, createSessionRoute, endSessionRoute, inspectRoute, bridgeRoute,
		filesRoute, entriesRoute, readFileRoute, removeFileRoute,
		egressRoute, askEgressRoute, findApprovalRoute, decideEgressRoute, revokeEgressRoute,
		secretsRoute, addSecretRoute, deleteSecretRoute, validateRoute, installRoute, packagesRoute, removePackagesRoute, packageAccessRoute, decidePackageRoute, revokePackageRoute, fetchPageRoute, browsePageRoute, searchWebRoute, limitsRoute,
		hostAccessRoute, askHostRoute, decideHostRoute, revokeHostRoute, execHostRoute, readHostRoute, writeHostRoute, listHostRoute, copyHostRoute,
		auditRoute, verifyAuditRoute, eventsRoute, runtimesRoute, statsRoute,
	}
}

// lookup includes the content of files only if it has at most maxContent bytes.
func lookup(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in lookupIn) (sandboxmcp.Result, error) {
	res, err := s.Lookup(ctx, c, sandboxmcp.Lookup{RequestID: in.ID, Wait: in.Wait, Cancel: in.Cancel})
	if err == nil && in.Content && len(res.Artifacts) > 0 && sizeOf(res.Artifacts) <= maxContent {
		return s.Lookup(ctx, c, sandboxmcp.Lookup{RequestID: in.ID, Content: true})
	}
	return res, err
}

func sizeOf(files []sandboxmcp.Artifact) (sum int64) {
	for _, f := range files {
		sum += f.SizeBytes
	}
	return sum
}

func findSession(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in about[sandboxmcp.SessionID]) (sandboxmcp.Session, error) {
	all, err := s.Sessions(ctx, c)
	if err != nil {
		return sandboxmcp.Session{}, err
	}
	i := slices.IndexFunc(all, func(have sandboxmcp.Session) bool { return have.ID == in.ID })
	if i < 0 {
		return sandboxmcp.Session{}, sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "this server has no session %s", sandboxmcp.Quote(string(in.ID)))
	}
	return all[i], nil
}

func readFile(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in readFileIn) (fileContent, error) {
	if in.Limit <= 0 || in.Limit > MaxFile {
		return fileContent{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "limit is %d; it must be 1 to %d", in.Limit, MaxFile)
	}
	file, content, err := s.ReadFile(ctx, c, in.ID, in.Path, in.Limit)
	return fileContent{SessionFile: file, Content: append([]byte{}, content...)}, err
}
