package sandboxmcp

import "time"

// EventType says what happened, one of a closed list.
type EventType string

// The types of events.
const (
	EventExecutionStarted   EventType = "execution.started"
	EventExecutionCompleted EventType = "execution.completed" // its exit status is 0
	EventExecutionFailed    EventType = "execution.failed"    // it ended in any other way, or could not be run
	EventExecutionTimeout   EventType = "execution.timeout"
	EventSessionCreated     EventType = "session.created"
	EventSessionKilled      EventType = "session.killed" // closed, expired or lost; data has the reason
	EventPackageInstalled   EventType = "package.installed"
	EventEgressRequested    EventType = "egress.requested"
	EventEgressApproved     EventType = "egress.approved"
	EventEgressDenied       EventType = "egress.denied"
	EventVaultAccessed      EventType = "vault.accessed"
	EventResourceExceeded   EventType = "resource.exceeded"
	EventArtifactSigned     EventType = "artifact.signed"
	EventQueueBackpressure  EventType = "queue.backpressure" // a request was refused, or many wait
)

// EventTypes lists all types.
func EventTypes() []EventType {
	return []EventType{
		EventExecutionStarted, EventExecutionCompleted, EventExecutionFailed, EventExecutionTimeout,
		EventSessionCreated, EventSessionKilled, EventPackageInstalled,
		EventEgressRequested, EventEgressApproved, EventEgressDenied, EventVaultAccessed,
		EventResourceExceeded, EventArtifactSigned, EventQueueBackpressure,
	}
}

// Event tells that something has happened, to whoever listens at that time. It
// is no record: that is the audit. Like it, an event never holds code, output
// or a secret. It is shared by all who listen: nobody may change Data.
type Event struct {
	ID        string         `json:"id"` // <server's mark>-<number>; the numbers of one server rise
	Type      EventType      `json:"type"`
	Namespace Namespace      `json:"namespace"`
	Message   string         `json:"message"` // one line for a person
	Data      map[string]any `json:"data"`    // names, numbers and sizes, such as request_id; never nil where it was received
	Timestamp time.Time      `json:"timestamp"`
	Dropped   int64          `json:"dropped"` // older events that had to make way for this one before this listener read them; their sum over what it received is what it lost
}
