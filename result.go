package sandboxmcp

import (
	"encoding/json"
	"time"
)

// Status says how an execution ended.
type Status string

// The statuses. StatusRunning is that of a background run that has not ended yet.
const (
	StatusCompleted   Status = "completed"     // exit code 0
	StatusFailed      Status = "failed"        // another exit code
	StatusTimedOut    Status = "timed_out"     // ended at timeout_seconds
	StatusOutOfMemory Status = "out_of_memory" // ended because of the memory limit
	StatusOutputLimit Status = "output_limit"  // ended at 16 times max_output_bytes
	StatusSignalled   Status = "signalled"     // ended by a signal that the product did not send
	StatusCancelled   Status = "cancelled"     // ended by the caller
	StatusRejected    Status = "rejected"      // not run: the syntax is wrong
	StatusRunning     Status = "running"       // in the background, not ended
)

// Statuses lists every status that an ended execution can have.
func Statuses() []Status {
	return []Status{StatusCompleted, StatusFailed, StatusTimedOut, StatusOutOfMemory, StatusOutputLimit, StatusSignalled, StatusCancelled, StatusRejected}
}

// Exit codes that the program has not chosen itself.
const (
	ExitStopped     = -1  // ended by the product: timeout, output limit, cancel
	ExitOutOfMemory = 137 // ended because of the memory limit
	ExitSignalBase  = 128 // plus the signal's number
)

// Result is the result of one execution. The order of the fields is that of the JSON object.
// The first eleven are those of the Python project sandboxmcp.
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
	Signal          string        `json:"signal,omitempty"` // name of the signal that ended the program, such as "SIGKILL"
	SessionID       *SessionID    `json:"session_id"`
	SessionCreated  bool          `json:"session_created,omitempty"` // the session did not exist before this run
	StateLost       bool          `json:"state_lost,omitempty"`      // the session's interpreter has ended: its files are kept, its variables are lost
	StateLostIn     []Language    `json:"state_lost_in,omitempty"`   // languages of which that is true, if other interpreters kept their variables; empty: of all
	Backend         string        `json:"backend"`
	StdoutTruncated bool          `json:"stdout_truncated"`
	StderrTruncated bool          `json:"stderr_truncated"`
	Results         []RichResult  `json:"results"`
	Error           *ProgramError `json:"error"` // the uncaught exception; nil: no exception
	Network         Network       `json:"network"`
	Isolation       *Isolation    `json:"isolation"`                 // nil while no sandbox was built
	Receipt         *Receipt      `json:"receipt"`                   // nil until the run has ended
	ElapsedSeconds  float64       `json:"elapsed_seconds,omitempty"` // of a program that runs; then Stdout and Stderr are what came so far
	TimeoutSeconds  float64       `json:"timeout_seconds,omitempty"` // of a run that has not ended
	Note            string        `json:"note,omitempty"`            // for an end that is not plain: a sentence with what helps
}

// ResourceUsage is what an execution used. The kernel measures it if the isolation report
// lists a memory, task or CPU limit; otherwise it is sampled.
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
	Traceback []string `json:"traceback"` // lines, without frames of the driver
}

// RichResult is a MIME bundle: a value in several forms. Its keys are MIME types, and
// is_main_result with a bool.
type RichResult map[string]any

// Network lists the destinations that a run has reached or was denied.
type Network struct {
	Allowed []string        `json:"allowed"`
	Denied  []DeniedRequest `json:"denied"`
	Failed  []DeniedRequest `json:"failed,omitempty"` // that were allowed and could not be reached
}

// DeniedRequest is a destination that was denied or not reached. Port is 0 for a DNS question.
type DeniedRequest struct {
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Times  int    `json:"times"`
	Reason string `json:"reason,omitempty"` // reason of the latest refusal
	Denial Denial `json:"-"`                // its kind
}

// Denial is the kind of a refusal, which decides what helps. Only the server that has refused a destination knows it.
type Denial int

// The kinds.
const (
	DenialOther    Denial = iota // for its reason, also if the destination is open
	DenialClosed                 // nobody has opened the destination
	DenialPerson                 // a person denied it
	DenialUnlisted               // it is not among the allowed_domains of the run
	DenialAddress                // it is open, but its address is special
)

// Artifact is a file below /mnt/data that a run has made or changed.
type Artifact struct {
	Name        string    `json:"name"`        // path below /mnt/data
	ContentB64  []byte    `json:"content_b64"` // base64 in JSON; may be left out of an answer
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
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	SizeBytes int64  `json:"size_bytes,omitempty"` // of a regular file that is too large
}

// MarshalJSON encodes missing content as an empty string.
func (a Artifact) MarshalJSON() ([]byte, error) {
	type plain Artifact
	if a.ContentB64 == nil {
		a.ContentB64 = []byte{}
	}
	return json.Marshal(plain(a))
}
