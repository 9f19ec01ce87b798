package sandboxmcp

import "time"

// AuditEntry is an entry of the audit record: an intended action (intent) or its result
// (outcome). It never contains code, output or a secret.
type AuditEntry struct {
	ID         string         `json:"id"`
	Seq        int64          `json:"seq"` // 1, 2, 3 … per namespace
	Timestamp  time.Time      `json:"timestamp"`
	Action     string         `json:"action"`
	Phase      string         `json:"phase"` // intent or outcome
	RequestID  RequestID      `json:"request_id"`
	SessionID  SessionID      `json:"session_id"`
	Language   Language       `json:"language"`
	ExitCode   *int           `json:"exit_code"`
	DurationMS *float64       `json:"duration_ms"`
	Success    *bool          `json:"success"`
	Detail     string         `json:"detail"`
	Namespace  Namespace      `json:"namespace"`
	Actor      string         `json:"actor"`
	Usage      *ResourceUsage `json:"resource_usage"`
	Metadata   map[string]any `json:"metadata"`
	Prev       string         `json:"prev"` // hash of the previous entry in its namespace; 64 zeros for the first
	Hash       string         `json:"hash"` // SHA-256 over the entry's canonical JSON and prev
}

// Phases of an [AuditEntry].
const (
	PhaseIntent  = "intent"
	PhaseOutcome = "outcome"
)

// AuditQuery selects entries of the audit record.
type AuditQuery struct {
	Action string    // empty: every action
	Since  time.Time // entries of this time and later; zero: all
	After  int64     // entries with a larger Seq; 0: all
	Limit  int       // 1 to 1000; 0: 50

	OldestFirst bool // return the oldest entries, oldest first; false: the newest, newest first
}

// AuditPage is the result of an [AuditQuery].
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Total   int          `json:"total"` // number of matching entries, regardless of the limit
	Head    AuditHead    `json:"head"`
}

// AuditHead is a signed checkpoint. It covers the first Size entries of the record, of all
// namespaces, in the order of their commits. Without a checkpoint Size is 0 and SignedAt is
// nil.
type AuditHead struct {
	Size     int64      `json:"size"`
	Root     string     `json:"root"` // root of the Merkle tree over the entries' hashes (RFC 6962), base64
	SignedAt *time.Time `json:"signed_at"`
}

// AuditSigning says whether a server signs the record as it grows. A server finds a fault of the record
// when it signs the entries that follow, so an idle server does not know of one.
type AuditSigning struct {
	Signed bool       `json:"signed"`           // new entries get checkpoints, which are written to the files outside the database, too, and the tables are those of a server
	Reason string     `json:"reason,omitempty"` // why not
	Since  *time.Time `json:"since,omitempty"`  // when the server found that
}

// AuditReport is the result of checking the whole record.
type AuditReport struct {
	OK          bool             `json:"ok"` // no fault was found
	Entries     int64            `json:"entries"`
	Namespaces  []AuditNamespace `json:"namespaces"`
	Checkpoints int64            `json:"checkpoints"`
	Head        AuditHead        `json:"head"`             // the newest checkpoint that matches the entries
	Tail        AuditTail        `json:"tail"`             // entries that were dropped because of their age, with a signed statement; nil: no entries were dropped
	Dropped     *AuditHead       `json:"dropped"`          // entries that were dropped because of their age, with a signed statement; nil: no entries were dropped
	Second      *AuditSecond     `json:"second,omitempty"` // the checkpoints in audit_checkpoint_file; nil: not configured
	Key         string           `json:"key"`              // SHA-256 of the raw public key that was used, hex
	Faults      []AuditFault     `json:"faults"`           // at most 50
}

// AuditNamespace is the chain of one namespace.
type AuditNamespace struct {
	Namespace Namespace `json:"namespace"`
	Entries   int64     `json:"entries"`
	Seq       int64     `json:"seq"`  // of the last entry
	Hash      string    `json:"hash"` // of the last entry
}

// AuditTail describes the entries that no checkpoint covers yet.
type AuditTail struct {
	Entries int64      `json:"entries"`
	Since   *time.Time `json:"since"` // time of the first of them; nil: no such entries
}

// AuditSecond describes the checkpoints in a second file.
type AuditSecond struct {
	File  string `json:"file"`
	Notes int    `json:"notes"`
	Size  int64  `json:"size"` // number of entries that the newest of them covers
}

// AuditFault is an entry or checkpoint that is not as the server wrote it.
type AuditFault struct {
	Kind      string    `json:"kind"` // edited, deleted, repeated, reordered, truncated, rewritten, unsigned, checkpoint, key, unreadable, schema, forged or found
	Namespace Namespace `json:"namespace"`
	Seq       int64     `json:"seq"` // as in the row; 0: the fault does not concern a single row
	Row       int64     `json:"row"` // position in the record, from 1
	ID        string    `json:"id"`
	Reason    string    `json:"reason"`
}
