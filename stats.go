package sandboxmcp

// QueueStats is the state of the queue.
type QueueStats struct {
	MaxConcurrent  int   `json:"max_concurrent"`
	Active         int   `json:"active"`
	Queued         int   `json:"queued"`
	TotalProcessed int64 `json:"total_processed"` // requests that have run and ended
}

// Stats has the engine's statistics since it was opened.
type Stats struct {
	Queue      QueueStats       `json:"queue"`
	Sessions   int              `json:"sessions"` // live sessions
	Executions map[Status]int64 `json:"executions"`
	LatencyMS  Latency          `json:"latency_ms"`       // times of the latest 1,024 executions, from request to result
	Pool       map[string]int   `json:"pool"`             // number of objects that are kept ready, by kind
	Resources  ResourceTotals   `json:"resources"`        // resources of the server's own process
	Record     *AuditSigning    `json:"record,omitempty"` // whether the audit record is signed; nil: not known, as if no server runs
}

// Latency has percentiles in milliseconds. They are 0 if nothing has run yet.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// ResourceTotals is the resident memory in MiB and the CPU time in seconds of a process.
type ResourceTotals struct {
	RAMMB      float64 `json:"ram_mb"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// Runtimes lists the languages and the backends of a server.
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
	Path              string   `json:"path"` // the interpreter's binary, not the shim of a version manager
	PackagesPreloaded []string `json:"packages_preloaded"`
	Hint              string   `json:"hint,omitempty"` // how to install it, if it is missing
}

// BackendInfo describes a backend.
type BackendInfo struct {
	Name      string     `json:"name"`
	Available bool       `json:"available"`
	Reason    string     `json:"reason"`    // why it is not available; empty if it is
	Isolation *Isolation `json:"isolation"` // walls of the trial at start; nil: not available
}
