package sandboxmcp

import "time"

// AuditEntry is one row of the record: what was about to be done (intent) or
// came of it (outcome). It never holds code, output or a secret.
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
	Prev       string         `json:"prev"` // hash of the entry before it in its namespace; 64 zeros for the first
	Hash       string         `json:"hash"` // SHA-256 over the entry's canonical JSON and prev
}

// Phases of an [AuditEntry].
const (
	PhaseIntent  = "intent"
	PhaseOutcome = "outcome"
)
