package sandboxmcp

import "time"

// JobStatus is the state of a [Job]: queued, running, error, or a [Status] of an ended run.
type JobStatus string

// The states of a job that a [Status] does not have.
const (
	JobQueued  JobStatus = "queued"
	JobRunning JobStatus = "running"
	JobError   JobStatus = "error" // it ended without a result; Lookup returns the error
)

// Job is a run that was started in the background.
type Job struct {
	ID          RequestID  `json:"job_id"`
	Status      JobStatus  `json:"status"`
	Language    Language   `json:"language"`
	SessionID   SessionID  `json:"session_id,omitempty"`
	Namespace   Namespace  `json:"namespace"`
	SubmittedAt time.Time  `json:"submitted_at"`
	EndedAt     *time.Time `json:"ended_at"` // nil: not ended
}
