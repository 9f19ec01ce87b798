package sandboxmcp

import "time"

// Lookup identifies a running or ended execution.
type Lookup struct {
	RequestID RequestID
	Wait      time.Duration // how long to wait for a running execution to end; 0: do not wait
	Cancel    bool          // cancel it if it runs in the background
	Content   bool          // return the content of its artifacts
}
