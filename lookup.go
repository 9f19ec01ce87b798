package sandboxmcp

import "time"

// Lookup asks for an execution by its id, whether it is still running or ended
// long ago.
type Lookup struct {
	RequestID RequestID
	Wait      time.Duration // how long to wait for a running one to end; 0: not at all
	Cancel    bool          // end it, if it runs in the background
	Content   bool          // fill in the content of its artifacts
}
