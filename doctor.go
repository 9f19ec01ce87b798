package sandboxmcp

// Check is one thing that was tried on this machine: a wall that a sandbox can
// have, a limit that can be held, an interpreter that can be run.
type Check struct {
	Name   string `json:"name"`   // such as "seccomp" or "user namespace"
	OK     bool   `json:"ok"`     // it was tried and held
	Needed bool   `json:"needed"` // without it nothing runs here
	Detail string `json:"detail"` // what was seen, or why it does not hold
	Fix    string `json:"fix"`    // the command or setting that brings it; empty when OK or when there is none
}
