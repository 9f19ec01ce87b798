package sandboxmcp

import "time"

// Subject is what a person can grant access to, in its canonical form. Exactly one field is set.
type Subject struct {
	Domain  string `json:"domain,omitempty"`  // destination of programs, as [ParseDomain] reads it
	Pattern string `json:"pattern,omitempty"` // command on the host
	Package string `json:"package,omitempty"` // package of a language, such as python:requests
}

// ApprovalStatus is the state of a question to a person.
type ApprovalStatus string

// The statuses of an [Approval]. An [AccessAnswer] has one of the first three.
const (
	ApprovalPending  ApprovalStatus = "pending"
	ApprovalApproved ApprovalStatus = "approved"
	ApprovalDenied   ApprovalStatus = "denied"
	ApprovalExpired  ApprovalStatus = "expired" // no person answered in time
)

// AccessAnswer is the state of a request for access, such as an [EgressAsk].
type AccessAnswer struct {
	Subject                     // canonical form
	Approved     bool           `json:"approved"`
	Status       ApprovalStatus `json:"status"`
	ApprovalID   string         `json:"approval_id,omitempty"` // empty if no person was asked
	ExpiresAt    *time.Time     `json:"expires_at"`            // when the access ends, or when the question expires; nil: neither applies
	HowToApprove string         `json:"how_to_approve"`        // instructions for the person; empty if there is nothing to do
}

// GrantScope says how long an access is granted.
type GrantScope string

// The scopes. The zero value lets the engine choose: a day if a model asked, until it is
// revoked if a person grants the access unasked.
const (
	GrantOnce     GrantScope = "once"     // for the first run that uses it
	GrantSession  GrantScope = "session"  // for the runs of one session
	GrantDuration GrantScope = "duration" // for a time
	GrantAlways   GrantScope = "always"   // until it is revoked
)

// AccessDecision is a person's answer to a pending approval with an ID. With a Subject
// instead of an ID it grants access without a question. With Check nothing changes: the
// answer says what the decision would do, and an error why it would be refused.
type AccessDecision struct {
	ID string `json:"approval_id,omitempty"`
	Subject
	SHA256    string        `json:"sha256,omitempty"` // Approval.SHA256 of the question that the person saw, which must still match; empty: unknown
	Deny      bool          `json:"deny,omitempty"`
	Check     bool          `json:"check,omitempty"`
	Scope     GrantScope    `json:"scope,omitempty"`
	For       time.Duration `json:"for_ns,omitempty"`     // how long the access lasts, with GrantDuration
	SessionID SessionID     `json:"session_id,omitempty"` // session that has the access, with GrantSession
}

// Approval is a question to a person.
type Approval struct {
	ID string `json:"approval_id"`
	Subject
	Reason      string         `json:"reason"`      // the model's reason, quoted and escaped; it need not be true. Empty: none was given
	ReasonFrom  string         `json:"reason_from"` // who wrote the reason: "model", or "program" if a program's connection waits for the answer
	Namespace   Namespace      `json:"namespace"`
	Status      ApprovalStatus `json:"status"`
	SHA256      string         `json:"sha256"` // hash of the canonical form of the question
	RequestedBy string         `json:"requested_by"`
	SessionID   SessionID      `json:"session_id,omitempty"`
	RequestID   RequestID      `json:"request_id,omitempty"` // run whose connection waits for the answer; empty: no run waits
	RequestedAt time.Time      `json:"requested_at"`
	ExpiresAt   time.Time      `json:"expires_at"`
}

// GrantStatus says whether a grant is still in force for later runs.
type GrantStatus string

// The statuses of an [AccessGrant].
const (
	GrantOpen GrantStatus = "open"
	GrantUsed GrantStatus = "used" // it was for one run, which has begun
)

// AccessGrant is an access that a person granted.
type AccessGrant struct {
	ID string `json:"grant_id"`
	Subject
	Status     GrantStatus `json:"status"`
	Namespace  Namespace   `json:"namespace"`
	Scope      GrantScope  `json:"scope"`
	SessionID  SessionID   `json:"session_id,omitempty"` // session that has the access, with GrantSession
	RequestID  RequestID   `json:"request_id,omitempty"` // run that has used the grant, with GrantOnce
	ApprovalID string      `json:"approval_id,omitempty"`
	GrantedBy  string      `json:"granted_by"`
	GrantedAt  time.Time   `json:"granted_at"`
	ExpiresAt  *time.Time  `json:"expires_at"` // nil: never
}

// AccessList lists the pending questions and the grants of one kind that have not expired.
type AccessList struct {
	Pending  []Approval    `json:"pending"`
	Granted  []AccessGrant `json:"granted"`
	Operator []string      `json:"operator"` // what the settings open
}

// AccessRevoked is the result of revoking the grants of a subject.
type AccessRevoked struct {
	Subject
	Revoked int `json:"revoked"` // number of grants that were revoked
}
