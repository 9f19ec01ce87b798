package api

import (
	"context"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Inputs of routes that are not a type of package sandboxmcp alone.
type (
	none      struct{}
	requestIn struct {
		ID sandboxmcp.RequestID `path:"id"`
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
	artifactIn struct {
		ID   sandboxmcp.RequestID `path:"id"`
		Path string               `query:"path"`
	}
	programIn struct {
		Request sandboxmcp.Request `body:"json"`
	}
	sessionIn struct {
		ID sandboxmcp.SessionID `path:"id"`
	}
	endSessionIn struct {
		ID     sandboxmcp.SessionID `path:"id"`
		IfIdle bool                 `query:"if_idle"`
	}
	newSessionIn struct {
		Spec sandboxmcp.SessionSpec `body:"json"`
	}
	inspectIn struct {
		ID sandboxmcp.SessionID `query:"session_id"`
	}
	bridgeIn struct {
		Bridge sandboxmcp.Bridge `body:"json"`
	}
	readFileIn struct {
		ID    sandboxmcp.SessionID `path:"id"`
		Path  string               `query:"path"`
		Limit int64                `query:"limit"`
	}
	fileIn struct {
		ID   sandboxmcp.SessionID `path:"id"`
		Path string               `query:"path"`
	}
	egressAskIn struct {
		Ask sandboxmcp.EgressAsk `body:"json"`
	}
	approvalIn struct {
		ID string `path:"id"`
	}
	decisionIn struct {
		Decision sandboxmcp.EgressDecision `body:"json"`
	}
	domainIn struct {
		Domain string `query:"domain"`
	}
	secretIn struct {
		Secret secretBody `body:"secret"`
	}
	keyIn struct {
		Key string `path:"key"`
	}
	limitsIn struct {
		Change sandboxmcp.LimitsChange `body:"json"`
	}
	auditIn struct {
		Action      string    `query:"action"`
		Since       time.Time `query:"since"`
		After       int64     `query:"after"`
		Limit       int       `query:"limit"`
		OldestFirst bool      `query:"oldest_first"`
	}
	followIn struct {
		Recent bool `query:"recent"`
	}
)

// secretBody is a [sandboxmcp.SecretSpec], whose value does not encode itself.
type secretBody struct {
	Key   string        `json:"key"`
	Value []byte        `json:"value_base64"`
	TTL   time.Duration `json:"ttl_ns,omitempty"`
}

// Answers that are not a type of package sandboxmcp.
type (
	done struct {
		Done bool `json:"done"`
	}
	outputAnswer struct {
		Content []byte `json:"content_base64"`
	}
	sessionList struct {
		Sessions []sandboxmcp.Session `json:"sessions"`
	}
	fileList struct {
		Artifacts []sandboxmcp.SessionFile `json:"artifacts"`
	}
	fileContent struct {
		sandboxmcp.SessionFile
		Content []byte `json:"content_base64"`
	}
	uploaded struct {
		SessionID sandboxmcp.SessionID `json:"session_id"`
		Path      string               `json:"path"`
	}
	eventList struct {
		Events []sandboxmcp.Event `json:"events"`
	}
)

// The table. Execute, upload and the following of events stream, and stand in
// stream.go and upload.go.
var (
	lookupRoute = route[lookupIn, sandboxmcp.Result]{
		method: "GET", path: "/v1/requests/{id}", answer: maxResult, slow: true, wait: func(in lookupIn) time.Duration { return in.Wait }, do: lookup,
	}
	cancelRoute = route[requestIn, done]{
		method: "DELETE", path: "/v1/requests/{id}",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in requestIn) (done, error) {
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
	artifactRoute = route[artifactIn, sandboxmcp.Artifact]{
		method: "GET", path: "/v1/requests/{id}/artifact", answer: maxResult, slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in artifactIn) (sandboxmcp.Artifact, error) {
			return s.ArtifactContent(ctx, c, in.ID, in.Path)
		},
	}
	startRoute = route[programIn, sandboxmcp.Result]{
		method: "POST", path: "/v1/execute/async", body: maxProgram, slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in programIn) (sandboxmcp.Result, error) {
			return s.Start(ctx, c, in.Request)
		},
	}
	sessionsRoute = route[none, sessionList]{
		method: "GET", path: "/v1/sessions",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (sessionList, error) {
			all, err := s.Sessions(ctx, c)
			return sessionList{append([]sandboxmcp.Session{}, all...)}, err
		},
	}
	sessionRoute       = route[sessionIn, sandboxmcp.Session]{method: "GET", path: "/v1/sessions/{id}", do: findSession}
	createSessionRoute = route[newSessionIn, sandboxmcp.Session]{
		method: "POST", path: "/v1/sessions", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in newSessionIn) (sandboxmcp.Session, error) {
			return s.CreateSession(ctx, c, in.Spec)
		},
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
	bridgeRoute = route[bridgeIn, sandboxmcp.Bridged]{
		method: "POST", path: "/v1/bridge", body: maxBridge, answer: maxBridge, slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in bridgeIn) (sandboxmcp.Bridged, error) {
			return s.Bridge(ctx, c, in.Bridge)
		},
	}
	filesRoute = route[sessionIn, fileList]{
		method: "GET", path: "/v1/sessions/{id}/files", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in sessionIn) (fileList, error) {
			files, err := s.SessionFiles(ctx, c, in.ID)
			return fileList{append([]sandboxmcp.SessionFile{}, files...)}, err
		},
	}
	readFileRoute = route[readFileIn, fileContent]{
		method: "GET", path: "/v1/sessions/{id}/file", answer: maxResponse + 2*MaxFile, slow: true, do: readFile,
	}
	removeFileRoute = route[fileIn, done]{
		method: "DELETE", path: "/v1/sessions/{id}/file",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in fileIn) (done, error) {
			return done{true}, s.RemoveFile(ctx, c, in.ID, in.Path)
		},
	}
	egressRoute = route[none, sandboxmcp.EgressList]{
		method: "GET", path: "/v1/egress",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (sandboxmcp.EgressList, error) {
			return s.Egress(ctx, c)
		},
	}
	askEgressRoute = route[egressAskIn, sandboxmcp.EgressAnswer]{
		method: "POST", path: "/v1/egress/requests", slow: true, wait: func(in egressAskIn) time.Duration { return in.Ask.Wait },
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in egressAskIn) (sandboxmcp.EgressAnswer, error) {
			return s.RequestEgress(ctx, c, in.Ask)
		},
	}
	findEgressRoute = route[approvalIn, sandboxmcp.Approval]{
		method: "GET", path: "/v1/egress/requests/{id}",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in approvalIn) (sandboxmcp.Approval, error) {
			return s.FindEgress(ctx, c, in.ID)
		},
	}
	decideEgressRoute = route[decisionIn, sandboxmcp.EgressAnswer]{
		method: "POST", path: "/v1/egress/decisions", finish: true, do: decideEgress,
	}
	revokeEgressRoute = route[domainIn, sandboxmcp.EgressRevoked]{
		method: "DELETE", path: "/v1/egress", finish: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in domainIn) (sandboxmcp.EgressRevoked, error) {
			return s.RevokeEgress(ctx, c, in.Domain)
		},
	}
	secretsRoute = route[none, sandboxmcp.VaultList]{
		method: "GET", path: "/v1/vault",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (sandboxmcp.VaultList, error) {
			return s.Secrets(ctx, c)
		},
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
	limitsRoute = route[limitsIn, sandboxmcp.LimitsChanged]{
		method: "POST", path: "/v1/limits", finish: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in limitsIn) (sandboxmcp.LimitsChanged, error) {
			return s.SetLimits(ctx, c, in.Change)
		},
	}
	auditRoute = route[auditIn, sandboxmcp.AuditPage]{
		method: "GET", path: "/v1/audit", answer: maxBridge,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in auditIn) (sandboxmcp.AuditPage, error) {
			return s.Audit(ctx, c, sandboxmcp.AuditQuery(in))
		},
	}
	verifyAuditRoute = route[none, sandboxmcp.AuditReport]{
		method: "GET", path: "/v1/audit/verify", answer: maxBridge, slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (sandboxmcp.AuditReport, error) {
			return s.VerifyAudit(ctx, c)
		},
	}
	eventsRoute = route[none, eventList]{
		method: "GET", path: "/v1/events/recent",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (eventList, error) {
			all, err := s.Events(ctx, c)
			return eventList{append([]sandboxmcp.Event{}, all...)}, err
		},
	}
	runtimesRoute = route[none, sandboxmcp.Runtimes]{
		method: "GET", path: "/v1/runtimes", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, _ sandboxmcp.Caller, _ none) (sandboxmcp.Runtimes, error) {
			return s.Runtimes(ctx)
		},
	}
	statsRoute = route[none, sandboxmcp.Stats]{
		method: "GET", path: "/v1/stats",
		do: func(ctx context.Context, s sandboxmcp.Service, _ sandboxmcp.Caller, _ none) (sandboxmcp.Stats, error) {
			return s.Stats(ctx)
		},
	}
)

// endpoints lists the table for the server.
func endpoints() []endpoint {
	return []endpoint{
		executeRoute{},
		followRoute{},
		uploadRoute{},
		lookupRoute, cancelRoute, outputRoute, artifactRoute, startRoute,
		sessionsRoute, sessionRoute, createSessionRoute, endSessionRoute, inspectRoute, bridgeRoute,
		filesRoute, readFileRoute, removeFileRoute,
		egressRoute, askEgressRoute, findEgressRoute, decideEgressRoute, revokeEgressRoute,
		secretsRoute, addSecretRoute, deleteSecretRoute, limitsRoute,
		auditRoute, verifyAuditRoute, eventsRoute, runtimesRoute, statsRoute,
	}
}

// lookup reads the content of files only if there is little enough of it.
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

func findSession(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in sessionIn) (sandboxmcp.Session, error) {
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
		return fileContent{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "limit is %d; it is 1 to %d", in.Limit, MaxFile)
	}
	file, content, err := s.ReadFile(ctx, c, in.ID, in.Path, in.Limit)
	return fileContent{SessionFile: file, Content: append([]byte{}, content...)}, err
}

func decideEgress(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in decisionIn) (sandboxmcp.EgressAnswer, error) {
	if (in.Decision.ID == "") == (in.Decision.Domain == "") {
		return sandboxmcp.EgressAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "one of approval_id and domain is needed")
	}
	return s.DecideEgress(ctx, c, in.Decision)
}
