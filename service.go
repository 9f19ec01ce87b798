package sandboxmcp

import "context"

// The interfaces of this file are what a server does for its callers. The engine
// implements all of them in its own process, and the client of internal/api for
// a server in another one. Every method may be called concurrently and stops
// when ctx is cancelled. Every failure of
// the server is an [*Error]; a client adds those of its connection.
//
// A verb acts in the namespace of its caller and sees nothing of another one: a
// request or session of another namespace does not exist.

// Runs executes programs and finds what became of them.
type Runs interface {
	// Execute runs a request to its end. Cancelling ctx ends the program.
	Execute(ctx context.Context, c Caller, r Request) (Result, error)
	// Start queues a request that lives on after ctx, and returns at once.
	Start(ctx context.Context, c Caller, r Request) (Result, error)
	// Lookup finds a running or ended request, or fails with request_not_found.
	Lookup(ctx context.Context, c Caller, l Lookup) (Result, error)
	// Cancel ends a waiting or running request, or fails with request_not_found.
	Cancel(ctx context.Context, c Caller, id RequestID) error
	// Output returns a stream of an ended request, "stdout" or "stderr", as it was kept.
	Output(ctx context.Context, c Caller, id RequestID, stream string) ([]byte, error)
	// ArtifactContent returns a file of an ended request with its content. The path
	// is relative to /mnt/data.
	ArtifactContent(ctx context.Context, c Caller, id RequestID, path string) (Artifact, error)
}

// Sessions keeps sandboxes that live across requests. Its methods fail with
// session_not_found or session_expired for a session that is not there.
type Sessions interface {
	// CreateSession makes a session.
	CreateSession(ctx context.Context, c Caller, spec SessionSpec) (Session, error)
	// TerminateSession ends a session and everything in it, a run included.
	TerminateSession(ctx context.Context, c Caller, id SessionID) error
	// CloseSession ends a session unless a run is going, which is session_busy.
	CloseSession(ctx context.Context, c Caller, id SessionID) error
	// Sessions lists the live sessions. It accepts EveryNamespace.
	Sessions(ctx context.Context, c Caller) ([]Session, error)
	// Inspect tells what the namespace has; with an id also the files of that session.
	Inspect(ctx context.Context, c Caller, id SessionID) (State, error)
	// Bridge hands values from one session to another.
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
	// RequestEgress asks a person to open a domain and waits as long as the ask says.
	RequestEgress(ctx context.Context, c Caller, ask EgressAsk) (EgressAnswer, error)
	// FindEgress returns a pending or decided approval, or fails with request_not_found.
	FindEgress(ctx context.Context, c Caller, id string) (Approval, error)
	// DecideEgress carries out a person's answer, or opens a domain without a
	// question. A tool may only call it with an answer that a person gave in a form
	// of ours. It accepts EveryNamespace for a decision with an ID.
	DecideEgress(ctx context.Context, c Caller, d EgressDecision) (EgressAnswer, error)
	// RevokeEgress closes a domain, or fails with request_not_found.
	RevokeEgress(ctx context.Context, c Caller, domain string) (EgressRevoked, error)
	// Egress lists what is asked for and open. It accepts EveryNamespace.
	Egress(ctx context.Context, c Caller) (EgressList, error)
}

// Secrets changes the vault. No value comes out of it.
type Secrets interface {
	// AddSecret puts in a secret, in place of one of the same key.
	AddSecret(ctx context.Context, c Caller, s SecretSpec) error
	// DeleteSecret removes a secret, or fails with not_found.
	DeleteSecret(ctx context.Context, c Caller, key string) error
	// Secrets lists the secrets of the namespace, and says where they are kept.
	Secrets(ctx context.Context, c Caller) (VaultList, error)
}

// LimitKeeper keeps the limits of a namespace.
type LimitKeeper interface {
	// SetLimits changes the limits of the namespace. A change that names nothing
	// returns the limits in force.
	SetLimits(ctx context.Context, c Caller, change LimitsChange) (LimitsChanged, error)
}

// Record reads the audit.
type Record interface {
	// Audit returns the entries of the namespace that a query asks for.
	Audit(ctx context.Context, c Caller, q AuditQuery) (AuditPage, error)
	// VerifyAudit checks the whole record, of all namespaces. Only a caller that
	// holds every namespace may ask.
	VerifyAudit(ctx context.Context, c Caller) (AuditReport, error)
}

// Events tells what happens. Its methods accept EveryNamespace.
type Events interface {
	// Events returns the last events, oldest first.
	Events(ctx context.Context, c Caller) ([]Event, error)
	// Follow returns a channel of what happens from now on, with recent beginning
	// with the last events. The channel is closed when ctx ends or the server does.
	// A reader that is too slow loses the oldest events; Dropped of the next one
	// says how many.
	Follow(ctx context.Context, c Caller, recent bool) (<-chan Event, error)
}

// Monitor tells what the server can do and what it has counted.
type Monitor interface {
	// Runtimes tells which languages and backends there are.
	Runtimes(ctx context.Context) (Runtimes, error)
	// Stats tells what was counted since the server was started.
	Stats(ctx context.Context) (Stats, error)
}

// Service is everything that a server does for its callers.
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
