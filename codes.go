package sandboxmcp

// Code is the kind of a failure, from a closed list. To add one, add a constant here and a
// row to codeRows, and run `make generate` for docs/errors.md. A test fails unless each
// constant has exactly one row.
type Code string

// The codes. Their meanings are in codeRows.
const (
	CodeInvalidArgument      Code = "invalid_argument"
	CodeInvalidSessionID     Code = "invalid_session_id"
	CodeInvalidFilename      Code = "invalid_filename"
	CodeInvalidPath          Code = "invalid_path"
	CodeInvalidContent       Code = "invalid_content"
	CodeUnsupportedLanguage  Code = "unsupported_language"
	CodeLimitExceedsCap      Code = "limit_exceeds_cap"
	CodeValidationFailed     Code = "validation_failed"
	CodeCodeTooLarge         Code = "code_too_large"
	CodeUploadTooLarge       Code = "upload_too_large"
	CodeArtifactTooLarge     Code = "artifact_too_large"
	CodeFileTooLarge         Code = "file_too_large"
	CodeAccessDenied         Code = "access_denied"
	CodeEgressDenied         Code = "egress_denied"
	CodeHostAccessDenied     Code = "host_access_denied"
	CodeHostAccessBlocked    Code = "host_access_blocked"
	CodeHostPathDenied       Code = "host_path_denied"
	CodeBlockedAddress       Code = "blocked_address"
	CodePackageRejected      Code = "package_rejected"
	CodeApprovalPending      Code = "approval_pending"
	CodeHostAccessDisabled   Code = "host_access_disabled"
	CodeNetworkDisabled      Code = "network_disabled"
	CodeSessionNotFound      Code = "session_not_found"
	CodeRequestNotFound      Code = "request_not_found"
	CodeNotFound             Code = "not_found"
	CodeSessionExpired       Code = "session_expired"
	CodeFileExists           Code = "file_exists"
	CodeSessionBusy          Code = "session_busy"
	CodeMaxSessions          Code = "max_sessions"
	CodeQueueFull            Code = "queue_full"
	CodeIsolationUnavailable Code = "isolation_unavailable"
	CodeBackendUnavailable   Code = "backend_unavailable"
	CodeDockerUnavailable    Code = "docker_unavailable"
	CodeDockerError          Code = "docker_error"
	CodeRuntimeUnavailable   Code = "runtime_unavailable"
	CodeBrowserUnavailable   Code = "browser_unavailable"
	CodeSearchUnavailable    Code = "search_unavailable"
	CodeVaultUnavailable     Code = "vault_unavailable"
	CodeInstallFailed        Code = "install_failed"
	CodeFetchFailed          Code = "fetch_failed"
	CodeExecutionFailed      Code = "execution_failed"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeCancelled            Code = "cancelled"
	CodeInternal             Code = "internal"
)

// CodeRow describes a code: the exit status of a command that fails with it, the HTTP
// status, whether a later retry can succeed, the hint of failures that have no hint of their
// own, and one line of documentation.
type CodeRow struct {
	Code  Code
	Exit  int
	HTTP  int
	Retry bool
	Hint  string
	Doc   string
}

// CodeRows returns the table of all codes, one row each.
func CodeRows() []CodeRow { return append([]CodeRow(nil), codeRows...) }

// Row returns the code's row. For an unknown code it returns that of [CodeInternal].
func (c Code) Row() CodeRow {
	for _, r := range codeRows {
		if r.Code == c {
			return r
		}
	}
	return codeRows[len(codeRows)-1]
}

var codeRows = []CodeRow{
	{CodeInvalidArgument, 2, 400, false, "correct the argument that the message names", "An argument is missing, unknown, of the wrong type or outside its range."},
	{CodeInvalidSessionID, 2, 400, false, "use the id of an existing session; a run may leave it out", "A session id contains characters that are not allowed, or is too long."},
	{CodeInvalidFilename, 2, 400, false, "use one flat name of A-Z a-z 0-9 . _ -", "A file name contains characters that are not allowed."},
	{CodeInvalidPath, 2, 400, false, "use an absolute path below /mnt/data without ..", "A path leads out of the working directory."},
	{CodeInvalidContent, 2, 400, false, "send the content as standard base64", "The content could not be decoded."},
	{CodeUnsupportedLanguage, 2, 400, false, "use one of python, node, shell", "The language is not supported."},
	{CodeLimitExceedsCap, 2, 400, false, "ask for at most the ceiling that the message names", "A limit is above the operator's ceiling."},
	{CodeValidationFailed, 2, 422, false, "correct the code at the lines that the issues name", "The code was not run: its syntax is wrong, or a dangerous pattern was refused."},
	{CodeCodeTooLarge, 8, 413, false, "send less code; put data into files", "The code is longer than max_code_bytes."},
	{CodeUploadTooLarge, 8, 413, false, "send a smaller file", "The upload is longer than the limit."},
	{CodeArtifactTooLarge, 8, 413, false, "fetch it by its download_url", "The file is too large to be read in one answer."},
	{CodeFileTooLarge, 8, 413, false, "make it smaller, or put it into several files", "The file is larger than the limit."},
	{CodeAccessDenied, 3, 403, false, "use a namespace that your identity holds", "The caller has no access to the namespace, or may not do this."},
	{CodeEgressDenied, 3, 403, false, "a person has to open the domain", "A network destination is not open to the program."},
	{CodeHostAccessDenied, 3, 403, false, "a person has to approve the command", "A host command is not allowed, but approval may be requested."},
	{CodeHostAccessBlocked, 3, 403, false, "do it without this command", "A host command is blocked, and approval cannot be requested."},
	{CodeHostPathDenied, 3, 403, false, "use another absolute path below the configured host_roots", "A host path is outside the roots, or is always refused."},
	{CodeBlockedAddress, 3, 403, false, "use a public address", "An address is private, local or otherwise special."},
	{CodePackageRejected, 3, 403, false, "choose another package", "A rule refuses the package."},
	{CodeApprovalPending, 4, 202, true, "a person has to approve it; ask again afterwards", "A person has not answered yet."},
	{CodeHostAccessDisabled, 3, 403, false, "an operator turns it on with enable_host_access", "Host tools are off."},
	{CodeNetworkDisabled, 3, 403, false, "an operator turns it on with enable_network", "The network is off."},
	{CodeSessionNotFound, 5, 404, false, "create a session first", "No session has this id."},
	{CodeRequestNotFound, 5, 404, false, "use the request_id of a result", "No request has this id."},
	{CodeNotFound, 5, 404, false, "check the name", "The file does not exist."},
	{CodeSessionExpired, 5, 410, false, "create a new session", "The session existed and has ended."},
	{CodeFileExists, 6, 409, false, "choose another name or set overwrite", "A file with this name exists already."},
	{CodeSessionBusy, 7, 429, true, "wait for the run in this session to end", "Another run is using the session."},
	{CodeMaxSessions, 7, 429, true, "close a session first", "The limit of open sessions is reached."},
	{CodeQueueFull, 7, 429, true, "ask again later", "Too many requests of this namespace are waiting, or they come too fast."},
	{CodeIsolationUnavailable, 9, 503, true, "run `sandboxmcp doctor`", "A wall cannot be built on this machine, so the code was not run."},
	{CodeBackendUnavailable, 9, 503, true, "run `sandboxmcp doctor`", "A part that the run needs, such as the backend or the state directory, cannot be used."},
	{CodeDockerUnavailable, 9, 503, true, "start Docker, or use the process backend", "Docker is not running or not installed."},
	{CodeDockerError, 9, 503, true, "see the log of Docker", "Docker returned an error."},
	{CodeRuntimeUnavailable, 9, 503, true, "install the interpreter", "The language's interpreter is not installed."},
	{CodeBrowserUnavailable, 9, 503, true, "install Chromium", "No browser is installed."},
	{CodeSearchUnavailable, 9, 503, true, "ask again later, or set SEARXNG_URL", "No search engine answered."},
	{CodeVaultUnavailable, 9, 503, true, "see the message", "The vault cannot be opened."},
	{CodeInstallFailed, 1, 502, true, "see the message", "A package could not be installed."},
	{CodeFetchFailed, 1, 502, true, "see the message", "A page could not be fetched."},
	{CodeExecutionFailed, 1, 502, true, "ask again", "The sandbox failed before the program ended."},
	{CodeUnauthenticated, 3, 401, false, "send an API key", "The request has no valid API key."},
	{CodeCancelled, 130, 499, false, "nothing: it was cancelled on request", "The caller cancelled the request."},
	{CodeInternal, 1, 500, false, "see the operator's log", "An internal error of the server."},
}
