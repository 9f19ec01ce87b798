package sandboxmcp

// QueueStats is the state of admission.
type QueueStats struct {
	MaxConcurrent  int   `json:"max_concurrent"`
	Active         int   `json:"active"`
	Queued         int   `json:"queued"`
	TotalProcessed int64 `json:"total_processed"` // requests that were admitted and have ended
}

// Stats is what the engine counts since it was opened.
type Stats struct {
	Queue      QueueStats       `json:"queue"`
	Sessions   int              `json:"sessions"` // live sessions
	Executions map[Status]int64 `json:"executions"`
	LatencyMS  Latency          `json:"latency_ms"` // of the last 1 024 executions, whole way through the engine
	Pool       map[string]int   `json:"pool"`       // what is kept ready, by kind
	Resources  ResourceTotals   `json:"resources"`  // of the server's own process
}

// Latency is a pair of percentiles in milliseconds; 0 while nothing has run.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// ResourceTotals is what a process takes: resident memory in MiB, CPU in seconds.
type ResourceTotals struct {
	RAMMB      float64 `json:"ram_mb"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// Runtimes is what can be run here, and on what.
type Runtimes struct {
	Runtimes []Runtime     `json:"runtimes"`
	Backends []BackendInfo `json:"backends"`
}

// Runtime is an interpreter of the machine.
type Runtime struct {
	Language          Language `json:"language"`
	Available         bool     `json:"available"`
	Version           string   `json:"version"`
	Backend           string   `json:"backend"`
	Path              string   `json:"path"` // the real binary, behind version-manager shims
	PackagesPreloaded []string `json:"packages_preloaded"`
	Hint              string   `json:"hint,omitempty"` // how to install it when it is not there
}

// BackendInfo is a place where code can run.
type BackendInfo struct {
	Name      string     `json:"name"`
	Available bool       `json:"available"`
	Reason    string     `json:"reason"`    // why it is not available; empty when it is
	Isolation *Isolation `json:"isolation"` // of the trial run at start; nil when not available
}
