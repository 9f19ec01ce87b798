package sandboxmcp

import "context"

// The interfaces of this file are the API of a server. The engine implements them in its own
// process, and the client of internal/api for a server in another process. Every method may
// be called concurrently and returns when ctx ends. Every failure of the server is an
// [*Error]; a client also returns errors of its connection.
//
// A method acts in the namespace of its caller. Requests and sessions of other namespaces do
// not exist for it.

// Runs executes programs and returns their results.
type Runs interface {
	// Execute runs a request to its end. Cancelling ctx ends the program.
	Execute(ctx context.Context, c Caller, r Request) (Result, error)
	// Start queues a request and returns at once. The request goes on after ctx ends.
	Start(ctx context.Context, c Caller, r Request) (Result, error)
	// Lookup finds a running or ended request, or fails with request_not_found.
	Lookup(ctx context.Context, c Caller, l Lookup) (Result, error)
	// Jobs lists the background runs of the namespace, newest first: those that wait or run,
	// and the latest that have ended since the server was started. It accepts EveryNamespace.
	Jobs(ctx context.Context, c Caller) ([]Job, error)
	// Cancel ends a waiting or running request, or fails with request_not_found.
	Cancel(ctx context.Context, c Caller, id RequestID) error
	// Output returns the stored stream of an ended request, "stdout" or "stderr".
	Output(ctx context.Context, c Caller, id RequestID, stream string) ([]byte, error)
	// ArtifactContent returns a file of an ended request with its content. The path
	// is relative to /mnt/data. The id of a session that has ended returns the newest
	// artifact of that name.
	ArtifactContent(ctx context.Context, c Caller, id RequestID, path string) (Artifact, error)
}

// Sessions manages sandboxes that live across requests. Its methods fail with
// session_not_found or session_expired if the session does not exist.
type Sessions interface {
	// CreateSession makes a session.
	CreateSession(ctx context.Context, c Caller, spec SessionSpec) (Session, error)
	// TerminateSession ends a session with everything in it, including a run.
	TerminateSession(ctx context.Context, c Caller, id SessionID) error
	// CloseSession ends a session. During a run it fails with session_busy.
	CloseSession(ctx context.Context, c Caller, id SessionID) error
	// Sessions lists the live sessions. It accepts EveryNamespace.
	Sessions(ctx context.Context, c Caller) ([]Session, error)
	// Inspect returns the state of the namespace; with an id also the files of that session.
	Inspect(ctx context.Context, c Caller, id SessionID) (State, error)
	// Bridge passes values from one session to another.
	Bridge(ctx context.Context, c Caller, b Bridge) (Bridged, error)
	// Upload puts a file into a session and returns the session's id and the
	// file's path.
	Upload(ctx context.Context, c Caller, u Upload) (SessionID, string, error)
	// SessionFiles lists the regular files directly in /mnt/data, without dot files.
	SessionFiles(ctx context.Context, c Caller, id SessionID) ([]SessionFile, error)
	// SessionEntries lists everything in /mnt/data, without dot files; with deep also what is
	// in its directories.
	SessionEntries(ctx context.Context, c Caller, id SessionID, deep bool) ([]SessionEntry, error)
	// ReadFile returns a file of a session. The path is absolute or relative to
	// /mnt/data. A file of more than limit bytes is artifact_too_large with size_bytes.
	ReadFile(ctx context.Context, c Caller, id SessionID, path string, limit int64) (SessionFile, []byte, error)
	// RemoveFile removes a file of a session.
	RemoveFile(ctx context.Context, c Caller, id SessionID, path string) error
}

// Egress opens and closes domains.
type Egress interface {
	// RequestEgress asks a person to open a domain and waits up to ask.Wait for the answer.
	RequestEgress(ctx context.Context, c Caller, ask EgressAsk) (AccessAnswer, error)
	// FindApproval returns a pending or decided approval of any kind: of a domain, a command of
	// the host or a package. It fails with request_not_found. It accepts EveryNamespace.
	FindApproval(ctx context.Context, c Caller, id string) (Approval, error)
	// DecideEgress carries out a person's answer, or opens a domain without a question.
	// An MCP tool may call it only with an answer that a person gave in a form of this
	// server. It accepts EveryNamespace for a decision with an ID.
	DecideEgress(ctx context.Context, c Caller, d AccessDecision) (AccessAnswer, error)
	// RevokeEgress closes a domain, or fails with request_not_found.
	RevokeEgress(ctx context.Context, c Caller, domain string) (AccessRevoked, error)
	// Egress lists pending questions and open domains. It accepts EveryNamespace.
	Egress(ctx context.Context, c Caller) (AccessList, error)
}

// Secrets manages the vault. It never returns the value of a secret.
type Secrets interface {
	// AddSecret stores a secret. It replaces one with the same key.
	AddSecret(ctx context.Context, c Caller, s SecretSpec) error
	// DeleteSecret removes a secret, or fails with not_found.
	DeleteSecret(ctx context.Context, c Caller, key string) error
	// Secrets lists the secrets of the namespace and says where they are stored.
	Secrets(ctx context.Context, c Caller) (VaultList, error)
}

// Checker checks code.
type Checker interface {
	// Validate checks code without running it, and corrects what can be corrected. Code
	// that cannot be parsed is no failure: the report says so.
	Validate(ctx context.Context, c Caller, check CodeCheck) (CodeReport, error)
}

// Installer installs packages of indexes for programs. They are seen by programs only, and
// never change what is installed on the machine.
type Installer interface {
	// Install installs packages into a session, or for the later runs of the namespace.
	Install(ctx context.Context, c Caller, ask InstallAsk) (Installation, error)
	// PackageSets lists what was installed for the later runs of the namespace, the latest
	// first.
	PackageSets(ctx context.Context, c Caller) ([]PackageSet, error)
	// RemovePackages removes the sets that were asked for by the name of a package, or the
	// set with an id, from the later runs of the namespace, and returns them. It fails with
	// not_found if there is none.
	RemovePackages(ctx context.Context, c Caller, name string) ([]PackageSet, error)
	// PackageAccess lists the packages that persons were asked for, and those that they have
	// allowed. It accepts EveryNamespace.
	PackageAccess(ctx context.Context, c Caller) (AccessList, error)
	// DecidePackage carries out a person's answer, or allows a package without a question.
	// An MCP tool never calls it. It accepts EveryNamespace for a decision with an ID.
	DecidePackage(ctx context.Context, c Caller, d AccessDecision) (AccessAnswer, error)
	// RevokePackage ends what persons have allowed for a package such as python:requests, or
	// fails with request_not_found. What is installed stays.
	RevokePackage(ctx context.Context, c Caller, name string) (AccessRevoked, error)
}

// Web reaches web servers at public addresses only: from the server itself, and from a browser.
type Web interface {
	// FetchPage returns a web page, or a part of it, as markdown.
	FetchPage(ctx context.Context, c Caller, ask PageAsk) (Page, error)
	// BrowsePage opens a web page in a browser in a sandbox and returns it as markdown. It
	// fails with browser_unavailable if the machine has none.
	BrowsePage(ctx context.Context, c Caller, ask BrowserAsk) (BrowserPage, error)
	// SearchWeb asks search engines until one has results, or fails with
	// search_unavailable.
	SearchWeb(ctx context.Context, c Caller, ask SearchAsk) (SearchResults, error)
}

// Machine executes commands of the machine that the server runs on, and reads and writes its
// files. Its methods fail with host_access_disabled while the operator has not turned them on,
// except HostAccess.
type Machine interface {
	// ExecHost executes a command that a rule or a person allows.
	ExecHost(ctx context.Context, c Caller, cmd HostCommand) (HostOutput, error)
	// RequestHostAccess asks a person to allow a command and waits up to ask.Wait for the
	// answer.
	RequestHostAccess(ctx context.Context, c Caller, ask HostAsk) (AccessAnswer, error)
	// DecideHostAccess carries out a person's answer, or allows a command without a question.
	// No MCP tool may call it. It accepts EveryNamespace for a decision with an ID.
	DecideHostAccess(ctx context.Context, c Caller, d AccessDecision) (AccessAnswer, error)
	// RevokeHostAccess withdraws what persons allowed, or fails with request_not_found.
	RevokeHostAccess(ctx context.Context, c Caller, pattern string) (AccessRevoked, error)
	// HostAccess lists the rules and the pending questions. It accepts EveryNamespace.
	HostAccess(ctx context.Context, c Caller) (HostAccess, error)
	// ReadHostFile returns a file, or a part of it.
	ReadHostFile(ctx context.Context, c Caller, r HostRead) (HostContent, error)
	// WriteHostFile writes a file.
	WriteHostFile(ctx context.Context, c Caller, w HostWrite) (HostWritten, error)
	// ListHostFiles lists a directory.
	ListHostFiles(ctx context.Context, c Caller, path string) (HostListing, error)
	// CopyHostFile copies a file into a session, or into the workspace.
	CopyHostFile(ctx context.Context, c Caller, cp HostCopy) (HostCopied, error)
}

// LimitKeeper stores the limits of a namespace.
type LimitKeeper interface {
	// SetLimits changes the limits of the namespace. The zero LimitsChange changes nothing
	// and returns the current limits.
	SetLimits(ctx context.Context, c Caller, change LimitsChange) (LimitsChanged, error)
}

// Record reads the audit record.
type Record interface {
	// Audit returns the entries of the namespace that match a query.
	Audit(ctx context.Context, c Caller, q AuditQuery) (AuditPage, error)
	// VerifyAudit checks the whole record, of all namespaces. It requires a caller that
	// holds every namespace.
	VerifyAudit(ctx context.Context, c Caller) (AuditReport, error)
}

// Events reports events. Its methods accept EveryNamespace.
type Events interface {
	// Events returns the latest events, oldest first.
	Events(ctx context.Context, c Caller) ([]Event, error)
	// Follow returns a channel of future events; with recent it begins with the latest
	// ones. The channel is closed when ctx ends or the server ends. A reader that is too
	// slow misses the oldest events; Dropped of the next event says how many.
	Follow(ctx context.Context, c Caller, recent bool) (<-chan Event, error)
}

// Monitor reports what the server can do, and its statistics.
type Monitor interface {
	// Runtimes lists languages and backends.
	Runtimes(ctx context.Context) (Runtimes, error)
	// Stats returns the statistics since the server was started.
	Stats(ctx context.Context) (Stats, error)
}

// Service is the whole API of a server.
type Service interface {
	Runs
	Sessions
	Egress
	Secrets
	Checker
	Installer
	Web
	Machine
	LimitKeeper
	Record
	Events
	Monitor
}
