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
	// Cancel ends a waiting or running request, or fails with request_not_found.
	Cancel(ctx context.Context, c Caller, id RequestID) error
	// Output returns the stored stream of an ended request, "stdout" or "stderr".
	Output(ctx context.Context, c Caller, id RequestID, stream string) ([]byte, error)
	// ArtifactContent returns a file of an ended request with its content. The path
	// is relative to /mnt/data.
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
	// ReadFile returns a file of a session. The path is absolute or relative to
	// /mnt/data. A file of more than limit bytes is artifact_too_large with size_bytes.
	ReadFile(ctx context.Context, c Caller, id SessionID, path string, limit int64) (SessionFile, []byte, error)
	// RemoveFile removes a file of a session.
	RemoveFile(ctx context.Context, c Caller, id SessionID, path string) error
}

// Egress opens and closes domains.
type Egress interface {
	// RequestEgress asks a person to open a domain and waits up to ask.Wait for the answer.
	RequestEgress(ctx context.Context, c Caller, ask EgressAsk) (EgressAnswer, error)
	// FindEgress returns a pending or decided approval, or fails with request_not_found.
	FindEgress(ctx context.Context, c Caller, id string) (Approval, error)
	// DecideEgress carries out a person's answer, or opens a domain without a question.
	// An MCP tool may call it only with an answer that a person gave in a form of this
	// server. It accepts EveryNamespace for a decision with an ID.
	DecideEgress(ctx context.Context, c Caller, d EgressDecision) (EgressAnswer, error)
	// RevokeEgress closes a domain, or fails with request_not_found.
	RevokeEgress(ctx context.Context, c Caller, domain string) (EgressRevoked, error)
	// Egress lists pending questions and open domains. It accepts EveryNamespace.
	Egress(ctx context.Context, c Caller) (EgressList, error)
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
	LimitKeeper
	Record
	Events
	Monitor
}
