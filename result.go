package sandboxmcp

import (
	"encoding/json"
	"time"
)

// Status tells how an execution ended.
type Status string

// The statuses. Running is that of a background run that has not ended yet.
const (
	StatusCompleted   Status = "completed"     // exit code 0
	StatusFailed      Status = "failed"        // another exit code
	StatusTimedOut    Status = "timed_out"     // stopped at timeout_seconds
	StatusOutOfMemory Status = "out_of_memory" // ended by the memory limit
	StatusOutputLimit Status = "output_limit"  // stopped at 16 times max_output_bytes
	StatusSignalled   Status = "signalled"     // a signal of its own making ended it
	StatusCancelled   Status = "cancelled"     // the caller stopped it
	StatusRejected    Status = "rejected"      // not run: the syntax is wrong
	StatusRunning     Status = "running"       // in the background, not ended
)

// Statuses lists every status that an ended execution can have.
func Statuses() []Status {
	return []Status{StatusCompleted, StatusFailed, StatusTimedOut, StatusOutOfMemory, StatusOutputLimit, StatusSignalled, StatusCancelled, StatusRejected}
}

// Exit codes that are not the program's own.
const (
	ExitStopped     = -1  // we stopped it: timeout, output limit, cancel
	ExitOutOfMemory = 137 // the memory limit ended it
	ExitSignalBase  = 128 // plus the signal's number
)

// Result is what one execution came to. The order of the fields is the order of
// the JSON object; the first eleven are those of sandboxmcp (Python).
type Result struct {
	RequestID  RequestID      `json:"request_id"`
	Success    bool           `json:"success"` // status is completed
	ExitCode   int            `json:"exit_code"`
	Stdout     string         `json:"stdout"` // valid UTF-8: cut to max_output_bytes, then repaired
	Stderr     string         `json:"stderr"`
	DurationMS float64        `json:"duration_ms"` // from admission to the last process's end
	Language   Language       `json:"language"`
	Artifacts  []Artifact     `json:"artifacts"`
	Usage      ResourceUsage  `json:"resource_usage"`
	Namespace  Namespace      `json:"namespace"`
	Metadata   map[string]any `json:"metadata"`

	Status          Status        `json:"status"`
	Signal          string        `json:"signal,omitempty"` // "SIGKILL" when a signal ended it
	SessionID       *SessionID    `json:"session_id"`
	StateLost       bool          `json:"state_lost,omitempty"` // the session's interpreter was ended: its files are there, its variables are not
	Backend         string        `json:"backend"`
	StdoutTruncated bool          `json:"stdout_truncated"`
	StderrTruncated bool          `json:"stderr_truncated"`
	Results         []RichResult  `json:"results"`
	Error           *ProgramError `json:"error"` // the uncaught exception; nil when there was none
	Network         Network       `json:"network"`
	Isolation       *Isolation    `json:"isolation"` // nil while no sandbox was built
	Receipt         *Receipt      `json:"receipt"`   // nil until the run has ended
}

// ResourceUsage is what an execution took, measured by the kernel where the
// isolation report names a memory, task or CPU wall, else sampled.
type ResourceUsage struct {
	PeakRAMMB   float64 `json:"peak_ram_mb"` // MiB
	CPUSeconds  float64 `json:"cpu_seconds"` // user and system, all processes
	PeakTasks   int     `json:"peak_tasks"`
	WallSeconds float64 `json:"wall_seconds"`
	MaxTasks    int     `json:"max_tasks"` // the limit that was in force
}

// ProgramError is an exception that the program did not catch.
type ProgramError struct {
	Name      string   `json:"name"`      // its class
	Value     string   `json:"value"`     // its text
	Traceback []string `json:"traceback"` // lines, without frames of ours
}

// RichResult is a MIME bundle: one value in several forms. The key is_main_result
// is a bool, every other key a MIME type.
type RichResult map[string]any

// Network tells what a run asked of the network.
type Network struct {
	Allowed []string        `json:"allowed"`
	Denied  []DeniedRequest `json:"denied"`
}

// DeniedRequest is a destination that was refused. Port is 0 where only the name
// was asked for.
type DeniedRequest struct {
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Times  int    `json:"times"`
	Reason string `json:"reason,omitempty"` // of the last time
}

// Artifact is a file that a run left below /mnt/data.
type Artifact struct {
	Name        string    `json:"name"`        // path below /mnt/data
	ContentB64  []byte    `json:"content_b64"` // base64 in JSON; empty where the door shortens it
	SizeBytes   int64     `json:"size_bytes"`
	SHA256      string    `json:"sha256"`
	Signature   string    `json:"signature"` // ed25519 over the DSSE statement, base64
	CreatedAt   time.Time `json:"created_at"`
	Path        string    `json:"path"` // absolute, below /mnt/data
	MIMEType    string    `json:"mime_type"`
	URI         string    `json:"uri"` // artifact://<session or request>/<path>
	DownloadURL *string   `json:"download_url"`
}

// SkippedFile is a file that was not kept as an artifact, and why.
type SkippedFile struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// MarshalJSON prints an absent content as an empty string.
func (a Artifact) MarshalJSON() ([]byte, error) {
	type plain Artifact
	if a.ContentB64 == nil {
		a.ContentB64 = []byte{}
	}
	return json.Marshal(plain(a))
}
