package api

import (
	"context"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// The routes of this file are those of the Python project sandboxmcp, with its paths and fields.
// Bodies are the arguments of the MCP tools, and answers are their results, in full.

const maxForm = 16 << 20 // bytes of a body with a program and its stdin

// Inputs.
type (
	executeIn struct {
		Run executeBody `body:"form"`
	}
	executeBody struct {
		Code           string               `json:"code" doc:"the program"`
		Language       string               `json:"language,omitempty" filled:"true" doc:"python, node or shell; default: python, or the session's"`
		AllowedDomains *[]string            `json:"allowed_domains,omitempty" doc:"reach only these of the open domains"`
		TimeoutSeconds float64              `json:"timeout_seconds,omitempty" above:"0" doc:"wall clock"`
		SessionID      sandboxmcp.SessionID `json:"session_id,omitempty" doc:"session to run in; made if it does not exist"`
		Packages       []string             `json:"packages,omitempty" doc:"install these first"`
		Stdin          string               `json:"stdin,omitempty"`
		Env            map[string]string    `json:"env,omitempty" doc:"further environment variables"`
		MaxRAMMB       int                  `json:"max_ram_mb,omitempty" min:"1" doc:"MiB"`
		MaxCPUCores    float64              `json:"max_cpu_cores,omitempty" above:"0"`
		MaxProcesses   int                  `json:"max_processes,omitempty" min:"1"`
		MaxOutputBytes int64                `json:"max_output_bytes,omitempty" min:"1" doc:"per stream"`
		Backend        string               `json:"backend,omitempty" filled:"true" doc:"default: the configured one"`
	}
	statusIn struct {
		ID   sandboxmcp.RequestID `path:"id" doc:"job_id of the job"`
		Wait int                  `query:"wait_seconds" min:"0" max:"45" doc:"how long to wait for the end, 0 to 45"`
	}
	jobIn struct {
		ID sandboxmcp.RequestID `path:"id" doc:"job_id of the job, or request_id of a run"`
	}
	validateIn struct {
		Check validateBody `body:"form"`
	}
	validateBody struct {
		Code     string `json:"code"`
		Language string `json:"language,omitempty" filled:"true" doc:"python, node or shell; default: python"`
		AutoFix  *bool  `json:"auto_fix,omitempty" doc:"correct what can be corrected; default: true"`
	}
	installIn struct {
		Ask installBody `body:"form"`
	}
	installBody struct {
		Language  string               `json:"language" filled:"true" doc:"python or node"`
		Packages  []string             `json:"packages" doc:"at most 50, such as requests>=2"`
		SessionID sandboxmcp.SessionID `json:"session_id,omitempty" doc:"session that gets them; default: all later runs"`
	}
	newSessionIn struct {
		Spec sessionBody `body:"form"`
	}
	sessionBody struct {
		Language       string               `json:"language,omitempty" filled:"true" doc:"python, node or shell; default: python"`
		TimeoutSeconds float64              `json:"timeout_seconds,omitempty" above:"0" doc:"wall clock of each run"`
		SessionID      sandboxmcp.SessionID `json:"session_id,omitempty" doc:"1 to 64 characters of A-Z a-z 0-9 _ -; default: a new id"`
		TTLMinutes     float64              `json:"ttl_minutes,omitempty" above:"0" max:"10080" doc:"minutes without use after which it ends"`
		Limits         limitsBody           `json:"limits,omitzero" doc:"for each run"`
	}
	limitsBody struct {
		MaxRAMMB       int     `json:"max_ram_mb,omitempty" min:"1"`
		MaxCPUCores    float64 `json:"max_cpu_cores,omitempty" above:"0"`
		TimeoutSeconds float64 `json:"timeout_seconds,omitempty" above:"0"`
		MaxProcesses   int     `json:"max_processes,omitempty" min:"1"`
		MaxOutputBytes int64   `json:"max_output_bytes,omitempty" min:"1"`
	}
	sessionIn struct {
		ID sandboxmcp.SessionID `path:"id"`
	}
	newSecretIn struct {
		Secret newSecretBody `body:"form,secret"`
	}
	newSecretBody struct {
		Key        string  `json:"key" doc:"name of the environment variable"`
		Value      string  `json:"value" doc:"8 bytes to 64 KiB"`
		TTLSeconds float64 `json:"ttl_seconds,omitempty" above:"0" doc:"lifetime; default: until it is deleted"`
	}
	entriesOfIn struct {
		Action string    `query:"action" doc:"only entries of this action, such as execute"`
		Since  time.Time `query:"since" doc:"only entries from this time on, RFC 3339"`
		Limit  int       `query:"limit" min:"1" max:"1000" doc:"1 to 1000; default: 50"`
	}
)

// Outputs.
type (
	jobStarted struct {
		JobID  sandboxmcp.RequestID `json:"job_id"`
		Status sandboxmcp.JobStatus `json:"status" doc:"queued or running"`
	}
	jobStatus struct {
		JobID          sandboxmcp.RequestID `json:"job_id"`
		Status         sandboxmcp.JobStatus `json:"status" doc:"queued, running, or the status of the result"`
		QueuePlace     int                  `json:"queue_place,omitempty"`
		ElapsedSeconds float64              `json:"elapsed_seconds,omitempty"`
		Stdout         string               `json:"stdout,omitempty" doc:"what a running program has printed so far"`
		Stderr         string               `json:"stderr,omitempty"`
		Result         *sandboxmcp.Result   `json:"result" doc:"null until the job has ended"`
	}
	jobsAnswer struct {
		Jobs    []sandboxmcp.Job `json:"jobs"`
		Total   int              `json:"total"`
		Running int              `json:"running"`
		Queued  int              `json:"queued"`
	}
	jobCancelled struct {
		JobID     sandboxmcp.RequestID `json:"job_id"`
		Cancelled bool                 `json:"cancelled"`
	}
	sessionsAnswer struct {
		Sessions []sandboxmcp.Session `json:"sessions"`
		Total    int                  `json:"total"`
	}
	sessionKilled struct {
		Killed sandboxmcp.SessionID `json:"killed"`
		Wiped  bool                 `json:"wiped"`
	}
	secretAdded struct {
		Added string `json:"added"`
	}
	secretDeleted struct {
		Deleted string `json:"deleted"`
	}
	secretsAnswer struct {
		Keys  []string `json:"keys"`
		Total int      `json:"total"`
	}
)

// Codes of runs.
var runFails = []sandboxmcp.Code{
	sandboxmcp.CodeUnsupportedLanguage, sandboxmcp.CodeInvalidSessionID, sandboxmcp.CodeValidationFailed, sandboxmcp.CodeCodeTooLarge, sandboxmcp.CodeUploadTooLarge,
	sandboxmcp.CodeEgressDenied, sandboxmcp.CodePackageRejected, sandboxmcp.CodeApprovalPending, sandboxmcp.CodeSessionExpired, sandboxmcp.CodeSessionBusy, sandboxmcp.CodeMaxSessions,
	sandboxmcp.CodeQueueFull, sandboxmcp.CodeIsolationUnavailable, sandboxmcp.CodeBackendUnavailable, sandboxmcp.CodeRuntimeUnavailable, sandboxmcp.CodeInstallFailed, sandboxmcp.CodeExecutionFailed,
}

// The routes.
var (
	runRoute = route[executeIn, sandboxmcp.Result]{
		method: "POST", path: "/execute", body: maxForm, slow: true, example: `{"code":"print(6*7)"}`, fails: runFails,
		doc: "Runs a program and answers when it has ended. A program that fails is a result. The run is cancelled if the client disconnects.",
		do:  withRequest(sandboxmcp.Service.Execute),
		again: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, id sandboxmcp.RequestID) (sandboxmcp.Result, error) {
			return lookup(ctx, s, c, lookupIn{ID: id, Content: true})
		},
	}
	runAsyncRoute = route[executeIn, jobStarted]{
		method: "POST", path: "/execute/async", body: maxForm, slow: true, example: `{"code":"import time; time.sleep(60)","timeout_seconds":90}`, fails: runFails,
		doc: "Starts a program and answers at once. The job goes on when the client disconnects.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in executeIn) (jobStarted, error) {
			res, err := withRequest(sandboxmcp.Service.Start)(ctx, s, c, in)
			return jobStarted{JobID: res.RequestID, Status: stateOf(res)}, err
		},
	}
	jobStatusRoute = route[statusIn, jobStatus]{
		method: "GET", path: "/execute/{id}/status", slow: true, example: "wait_seconds=30",
		doc:   "Returns the state of a job, and its result once it has ended. A job that ended without a result answers with its error.",
		fails: []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound}, do: findJob,
		again: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, id sandboxmcp.RequestID) (jobStatus, error) {
			return findJob(ctx, s, c, statusIn{ID: id})
		},
	}
	listJobsRoute = route[none, jobsAnswer]{
		method: "GET", path: "/jobs", all: true,
		doc: "Lists the jobs that wait or run, and the latest that have ended, newest first.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (jobsAnswer, error) {
			all, err := s.Jobs(ctx, c)
			out := jobsAnswer{Jobs: all, Total: len(all)}
			for _, j := range all {
				if j.Status == sandboxmcp.JobRunning {
					out.Running++
				}
				if j.Status == sandboxmcp.JobQueued {
					out.Queued++
				}
			}
			return out, err
		},
	}
	cancelJobRoute = route[jobIn, jobCancelled]{
		method: "DELETE", path: "/jobs/{id}", finish: true, fails: []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound},
		doc: "Ends a job that waits or runs. Its status is then cancelled.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in jobIn) (jobCancelled, error) {
			return jobCancelled{in.ID, true}, s.Cancel(ctx, c, in.ID)
		},
	}
	checkRoute = route[validateIn, sandboxmcp.CodeReport]{
		method: "POST", path: "/validate", body: maxForm, slow: true, example: `{"code":"print(1"}`,
		fails: []sandboxmcp.Code{sandboxmcp.CodeUnsupportedLanguage, sandboxmcp.CodeCodeTooLarge, sandboxmcp.CodeUploadTooLarge},
		doc:   "Parses a program without running it, and corrects what can be corrected.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in validateIn) (sandboxmcp.CodeReport, error) {
			b := in.Check
			return s.Validate(ctx, c, sandboxmcp.CodeCheck{Code: b.Code, Language: sandboxmcp.Language(b.Language), NoFix: b.AutoFix != nil && !*b.AutoFix})
		},
	}
	installPackagesRoute = route[installIn, sandboxmcp.Installation]{
		method: "POST", path: "/install", slow: true, example: `{"language":"python","packages":["six"]}`,
		fails: []sandboxmcp.Code{sandboxmcp.CodeUnsupportedLanguage, sandboxmcp.CodePackageRejected, sandboxmcp.CodeApprovalPending, sandboxmcp.CodeSessionNotFound, sandboxmcp.CodeSessionExpired, sandboxmcp.CodeInstallFailed},
		doc:   "Installs packages and their dependencies into a session, or for all later runs of the namespace.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in installIn) (sandboxmcp.Installation, error) {
			return s.Install(ctx, c, sandboxmcp.InstallAsk{Language: sandboxmcp.Language(in.Ask.Language), Packages: in.Ask.Packages, SessionID: in.Ask.SessionID})
		},
	}
	listSessionsRoute = route[none, sessionsAnswer]{
		method: "GET", path: "/sessions", all: true, doc: "Lists the live sessions.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (sessionsAnswer, error) {
			all, err := s.Sessions(ctx, c)
			return sessionsAnswer{all, len(all)}, err
		},
	}
	newSessionRoute = route[newSessionIn, sandboxmcp.Session]{
		method: "POST", path: "/sessions", slow: true, example: `{"language":"python","ttl_minutes":60}`,
		fails: []sandboxmcp.Code{sandboxmcp.CodeUnsupportedLanguage, sandboxmcp.CodeInvalidSessionID, sandboxmcp.CodeMaxSessions, sandboxmcp.CodeIsolationUnavailable, sandboxmcp.CodeBackendUnavailable},
		doc:   "Makes a session: a sandbox that keeps files and variables from run to run.", do: newSession,
	}
	killSessionRoute = route[sessionIn, sessionKilled]{
		method: "DELETE", path: "/sessions/{id}", slow: true, finish: true, fails: []sandboxmcp.Code{sandboxmcp.CodeInvalidSessionID, sandboxmcp.CodeSessionNotFound, sandboxmcp.CodeSessionExpired},
		doc: "Ends a session, its processes, files and variables.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in sessionIn) (sessionKilled, error) {
			return sessionKilled{in.ID, true}, s.TerminateSession(ctx, c, in.ID)
		},
	}
	listRuntimesRoute = route[none, sandboxmcp.Runtimes]{
		method: "GET", path: "/runtimes", slow: true, doc: "Lists the languages that can be run, and the backends with their walls.", do: ofServer(sandboxmcp.Service.Runtimes),
	}
	showStatsRoute = route[none, sandboxmcp.Stats]{
		method: "GET", path: "/stats", doc: "Returns the load of the server since its start, of all namespaces together: queue, sessions, runs by status, latency in milliseconds.", do: ofServer(sandboxmcp.Service.Stats),
	}
	listSecretsRoute = route[none, secretsAnswer]{
		method: "GET", path: "/vault", fails: []sandboxmcp.Code{sandboxmcp.CodeVaultUnavailable}, doc: "Lists the names of the namespace's secrets, and no value.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (secretsAnswer, error) {
			all, err := s.Secrets(ctx, c)
			out := secretsAnswer{Total: len(all.Secrets)}
			for _, secret := range all.Secrets {
				out.Keys = append(out.Keys, secret.Key)
			}
			return out, err
		},
	}
	newSecretRoute = route[newSecretIn, secretAdded]{
		method: "POST", path: "/vault", body: maxSecret, finish: true, example: `{"key":"API_TOKEN","value":"a-long-secret"}`, fails: []sandboxmcp.Code{sandboxmcp.CodeVaultUnavailable},
		doc: "Stores a secret. Programs see it in their environment; it is masked in their output.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in newSecretIn) (secretAdded, error) {
			b := in.Secret
			return secretAdded{b.Key}, s.AddSecret(ctx, c, sandboxmcp.SecretSpec{Key: b.Key, Value: sandboxmcp.NewSecret(b.Value), TTL: seconds(b.TTLSeconds)})
		},
	}
	removeSecretRoute = route[keyIn, secretDeleted]{
		method: "DELETE", path: "/vault/{key}", finish: true, fails: []sandboxmcp.Code{sandboxmcp.CodeNotFound, sandboxmcp.CodeVaultUnavailable}, doc: "Deletes a secret.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in keyIn) (secretDeleted, error) {
			return secretDeleted{in.Key}, s.DeleteSecret(ctx, c, in.Key)
		},
	}
	readAuditRoute = route[entriesOfIn, sandboxmcp.AuditPage]{
		method: "GET", path: "/audit", example: "action=execute&limit=10",
		doc: "Returns the newest entries of the namespace's audit record, newest first, without code or output.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in entriesOfIn) (sandboxmcp.AuditPage, error) {
			return s.Audit(ctx, c, sandboxmcp.AuditQuery{Action: in.Action, Since: in.Since, Limit: in.Limit})
		},
	}
)

// withRequest adapts a method that runs a program.
func withRequest(verb func(sandboxmcp.Service, context.Context, sandboxmcp.Caller, sandboxmcp.Request) (sandboxmcp.Result, error)) work[executeIn, sandboxmcp.Result] {
	return func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in executeIn) (sandboxmcp.Result, error) {
		b := in.Run
		req := sandboxmcp.Request{
			Code: b.Code, Language: sandboxmcp.Language(b.Language), Env: b.Env, Backend: b.Backend, Packages: b.Packages, SessionID: b.SessionID, Display: sandboxmcp.DisplayStdout, Reader: sandboxmcp.ReaderREST,
			Limits: sandboxmcp.Limits{MaxRAMMB: b.MaxRAMMB, MaxCPUCores: b.MaxCPUCores, TimeoutSeconds: b.TimeoutSeconds, MaxProcesses: b.MaxProcesses, MaxOutputBytes: b.MaxOutputBytes},
		}
		if b.SessionID != "" {
			req.Display = sandboxmcp.DisplayResults
		}
		if b.Stdin != "" {
			req.Stdin = []byte(b.Stdin)
		}
		if b.AllowedDomains != nil { // an empty list allows no domain
			req.AllowedDomains = append([]string{}, *b.AllowedDomains...)
		}
		res, err := verb(s, ctx, c, req)
		if sizeOf(res.Artifacts) > maxContent {
			res.Artifacts = withoutContent(res.Artifacts)
		}
		return res, err
	}
}

// stateOf returns the state of a job from its result.
func stateOf(r sandboxmcp.Result) sandboxmcp.JobStatus {
	switch {
	case r.Status != sandboxmcp.StatusRunning:
		return sandboxmcp.JobStatus(r.Status)
	case placeOf(r) > 0:
		return sandboxmcp.JobQueued
	}
	return sandboxmcp.JobRunning
}

// placeOf returns the place of a run in the queue; 0: it does not wait.
func placeOf(r sandboxmcp.Result) int {
	n, _ := r.Metadata["queue_place"].(int)
	return n
}

func findJob(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in statusIn) (jobStatus, error) {
	res, err := lookup(ctx, s, c, lookupIn{ID: in.ID, Wait: time.Duration(in.Wait) * time.Second, Content: true})
	if err != nil {
		return jobStatus{}, err
	}
	out := jobStatus{JobID: res.RequestID, Status: stateOf(res)}
	if res.Status == sandboxmcp.StatusRunning {
		out.QueuePlace, out.ElapsedSeconds, out.Stdout, out.Stderr = placeOf(res), res.ElapsedSeconds, res.Stdout, res.Stderr
		return out, nil
	}
	out.Result = &res
	return out, nil
}

func newSession(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in newSessionIn) (sandboxmcp.Session, error) {
	b := in.Spec
	limits := sandboxmcp.Limits(b.Limits)
	if n := b.TimeoutSeconds; n != 0 {
		if other := limits.TimeoutSeconds; other != 0 && other != n {
			return sandboxmcp.Session{}, invalid("timeout_seconds is %s and limits.timeout_seconds is %s; give one", digits(n), digits(other))
		}
		limits.TimeoutSeconds = n
	}
	return s.CreateSession(ctx, c, sandboxmcp.SessionSpec{ID: b.SessionID, Language: sandboxmcp.Language(b.Language), TTL: seconds(60 * b.TTLMinutes), Limits: limits})
}

func digits(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }

// restEndpoints returns the routes over HTTP.
func restEndpoints() []endpoint {
	return append([]endpoint{
		runRoute, runAsyncRoute, jobStatusRoute, listJobsRoute, cancelJobRoute, checkRoute, installPackagesRoute,
		newSessionRoute, listSessionsRoute, killSessionRoute,
		newSecretRoute, listSecretsRoute, removeSecretRoute,
		approvalsRoute, approvalRoute, askRoute, decideRoute, revokeRoute,
		readAuditRoute,
		followRoute{restFollowPath},
		listRuntimesRoute, showStatsRoute,
	}, specials()...)
}
