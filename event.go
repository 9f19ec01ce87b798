package sandboxmcp

import "time"

// EventType is the kind of an event, from a closed list.
type EventType string

// The types of events.
const (
	EventExecutionStarted   EventType = "execution.started"
	EventExecutionCompleted EventType = "execution.completed" // exit status 0
	EventExecutionFailed    EventType = "execution.failed"    // ended in any other way, or could not be run
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

// Event reports something that has happened to the current subscribers. Events are not
// stored; the audit record is. Like the record, they never contain code, output or a
// secret. All subscribers share an event, so they may not modify Data.
type Event struct {
	ID        string         `json:"id"` // <server's mark>-<number>; the numbers of one server rise
	Type      EventType      `json:"type"`
	Namespace Namespace      `json:"namespace"`
	Message   string         `json:"message"` // one line for a person
	Data      map[string]any `json:"data"`    // names, numbers and sizes, such as request_id; a received event's Data is not nil
	Timestamp time.Time      `json:"timestamp"`
	Dropped   int64          `json:"dropped"` // number of older events that this subscriber has missed since the event before this one
}
