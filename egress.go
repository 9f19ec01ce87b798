package sandboxmcp

import "time"

// EgressAsk asks that a person open a domain to the programs of a namespace.
type EgressAsk struct {
	Domain    string        `json:"domain"`           // as [ParseDomain] reads it
	Port      int           `json:"port,omitempty"`   // of the domain, where it names none; 0: as Domain says
	Reason    string        `json:"reason,omitempty"` // in the words of whoever asks: a model, so nothing in it is to be believed
	SessionID SessionID     `json:"session_id,omitempty"`
	RequestID RequestID     `json:"request_id,omitempty"` // of the run whose connection waits; empty: none does
	Wait      time.Duration `json:"wait_ns,omitempty"`    // for the person; 0: not at all
}

// ApprovalStatus is what became of what a person was asked.
type ApprovalStatus string

// The statuses of an [Approval]. Only the first three are those of an answer.
const (
	ApprovalPending  ApprovalStatus = "pending"
	ApprovalApproved ApprovalStatus = "approved"
	ApprovalDenied   ApprovalStatus = "denied"
	ApprovalExpired  ApprovalStatus = "expired" // nobody answered in time
)

// EgressAnswer tells what came of an [EgressAsk].
type EgressAnswer struct {
	Domain       string         `json:"domain"` // in its canonical form
	Approved     bool           `json:"approved"`
	Status       ApprovalStatus `json:"status"`
	ApprovalID   string         `json:"approval_id"`    // empty when nobody was or had to be asked
	ExpiresAt    *time.Time     `json:"expires_at"`     // when it closes again, or when the question lapses; nil: never, or there is none
	HowToApprove string         `json:"how_to_approve"` // what a person does; empty when there is nothing to do
}

// GrantScope says how long an approval holds.
type GrantScope string

// The scopes. The zero one lets the engine choose: for a day where a model asked,
// until it is revoked where a person did.
const (
	GrantOnce     GrantScope = "once"     // for the first run that uses it
	GrantSession  GrantScope = "session"  // for the runs of one session
	GrantDuration GrantScope = "duration" // for a time
	GrantAlways   GrantScope = "always"   // until it is revoked
)

// EgressDecision is a person's answer to a pending approval, by its ID, or, with
// a Domain in place of an ID, the opening of a domain that nobody asked for.
type EgressDecision struct {
	ID        string        `json:"approval_id,omitempty"`
	Domain    string        `json:"domain,omitempty"`
	SHA256    string        `json:"sha256,omitempty"` // of what the person saw, as [Approval] has it; empty: not known. Another one is refused
	Deny      bool          `json:"deny,omitempty"`
	Scope     GrantScope    `json:"scope,omitempty"`
	For       time.Duration `json:"for_ns,omitempty"`     // of GrantDuration
	SessionID SessionID     `json:"session_id,omitempty"` // of GrantSession
}

// Approval is a question to a person.
type Approval struct {
	ID          string         `json:"approval_id"`
	Domain      string         `json:"domain"`
	Reason      string         `json:"reason"`      // what the asking side says, in quotes and escaped; not to be believed
	ReasonFrom  string         `json:"reason_from"` // who wrote it: model
	Namespace   Namespace      `json:"namespace"`
	Status      ApprovalStatus `json:"status"`
	SHA256      string         `json:"sha256"` // of the canonical form of what is asked for, which is what is opened
	RequestedBy string         `json:"requested_by"`
	SessionID   SessionID      `json:"session_id,omitempty"`
	RequestID   RequestID      `json:"request_id,omitempty"` // of a run whose connection waits for the answer
	RequestedAt time.Time      `json:"requested_at"`
	ExpiresAt   time.Time      `json:"expires_at"`
}

// EgressGrant is a domain that a person opened.
type EgressGrant struct {
	ID         string     `json:"grant_id"`
	Domain     string     `json:"domain"`
	Namespace  Namespace  `json:"namespace"`
	Scope      GrantScope `json:"scope"`
	SessionID  SessionID  `json:"session_id,omitempty"` // of GrantSession
	RequestID  RequestID  `json:"request_id,omitempty"` // of GrantOnce: the run that has used it
	ApprovalID string     `json:"approval_id,omitempty"`
	GrantedBy  string     `json:"granted_by"`
	GrantedAt  time.Time  `json:"granted_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil: never
}

// EgressList is all that is asked for and open.
type EgressList struct {
	Pending  []Approval    `json:"pending"`
	Granted  []EgressGrant `json:"granted"`
	Operator []string      `json:"operator"` // the domains that the settings open
}

// EgressRevoked tells what was closed.
type EgressRevoked struct {
	Domain  string `json:"domain"`
	Revoked int    `json:"revoked"` // how many grants
}
