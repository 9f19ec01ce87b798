package sandboxmcp

import "time"

// EgressAsk asks a person to open a domain to the programs of a namespace.
type EgressAsk struct {
	Domain    string        `json:"domain"`           // as [ParseDomain] reads it
	Port      int           `json:"port,omitempty"`   // port, if Domain has none; 0: that of Domain
	Reason    string        `json:"reason,omitempty"` // written by a model, so it need not be true
	SessionID SessionID     `json:"session_id,omitempty"`
	RequestID RequestID     `json:"request_id,omitempty"` // run whose connection waits for the answer; empty: no run waits
	Wait      time.Duration `json:"wait_ns,omitempty"`    // how long to wait for the answer; 0: do not wait
}

// ApprovalStatus is the state of a question to a person.
type ApprovalStatus string

// The statuses of an [Approval]. An [EgressAnswer] has one of the first three.
const (
	ApprovalPending  ApprovalStatus = "pending"
	ApprovalApproved ApprovalStatus = "approved"
	ApprovalDenied   ApprovalStatus = "denied"
	ApprovalExpired  ApprovalStatus = "expired" // no person answered in time
)

// EgressAnswer is the result of an [EgressAsk].
type EgressAnswer struct {
	Domain       string         `json:"domain"` // canonical form
	Approved     bool           `json:"approved"`
	Status       ApprovalStatus `json:"status"`
	ApprovalID   string         `json:"approval_id"`    // empty if no person was asked
	ExpiresAt    *time.Time     `json:"expires_at"`     // when the domain closes again, or when the question expires; nil: neither applies
	HowToApprove string         `json:"how_to_approve"` // instructions for the person; empty if there is nothing to do
}

// GrantScope says how long a domain stays open.
type GrantScope string

// The scopes. The zero value lets the engine choose: a day if a model asked, until it is
// revoked if a person opened the domain unasked.
const (
	GrantOnce     GrantScope = "once"     // for the first run that uses it
	GrantSession  GrantScope = "session"  // for the runs of one session
	GrantDuration GrantScope = "duration" // for a time
	GrantAlways   GrantScope = "always"   // until it is revoked
)

// EgressDecision is a person's answer to a pending approval with an ID. With a Domain
// instead of an ID it opens a domain without a question.
type EgressDecision struct {
	ID        string        `json:"approval_id,omitempty"`
	Domain    string        `json:"domain,omitempty"`
	SHA256    string        `json:"sha256,omitempty"` // Approval.SHA256 of the question that the person saw, which must still match; empty: unknown
	Deny      bool          `json:"deny,omitempty"`
	Scope     GrantScope    `json:"scope,omitempty"`
	For       time.Duration `json:"for_ns,omitempty"`     // how long the domain stays open, with GrantDuration
	SessionID SessionID     `json:"session_id,omitempty"` // session that may use the domain, with GrantSession
}

// Approval is a question to a person.
type Approval struct {
	ID          string         `json:"approval_id"`
	Domain      string         `json:"domain"`
	Reason      string         `json:"reason"`      // the model's reason, quoted and escaped; it need not be true
	ReasonFrom  string         `json:"reason_from"` // who wrote Reason: "model"
	Namespace   Namespace      `json:"namespace"`
	Status      ApprovalStatus `json:"status"`
	SHA256      string         `json:"sha256"` // hash of the canonical form of the question
	RequestedBy string         `json:"requested_by"`
	SessionID   SessionID      `json:"session_id,omitempty"`
	RequestID   RequestID      `json:"request_id,omitempty"` // run whose connection waits for the answer; empty: no run waits
	RequestedAt time.Time      `json:"requested_at"`
	ExpiresAt   time.Time      `json:"expires_at"`
}

// EgressGrant is a domain that a person opened.
type EgressGrant struct {
	ID         string     `json:"grant_id"`
	Domain     string     `json:"domain"`
	Namespace  Namespace  `json:"namespace"`
	Scope      GrantScope `json:"scope"`
	SessionID  SessionID  `json:"session_id,omitempty"` // session that may use the domain, with GrantSession
	RequestID  RequestID  `json:"request_id,omitempty"` // run that has used the domain, with GrantOnce
	ApprovalID string     `json:"approval_id,omitempty"`
	GrantedBy  string     `json:"granted_by"`
	GrantedAt  time.Time  `json:"granted_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil: never
}

// EgressList lists the pending questions and the open domains.
type EgressList struct {
	Pending  []Approval    `json:"pending"`
	Granted  []EgressGrant `json:"granted"`
	Operator []string      `json:"operator"` // the domains that the settings open
}

// EgressRevoked is the result of closing a domain.
type EgressRevoked struct {
	Domain  string `json:"domain"`
	Revoked int    `json:"revoked"` // number of grants that were revoked
}
