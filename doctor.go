package sandboxmcp

// Check is the result of a trial on this machine: of a wall, a limit or an interpreter.
type Check struct {
	Name   string `json:"name"`   // such as "seccomp" or "user namespace"
	OK     bool   `json:"ok"`     // the trial succeeded
	Needed bool   `json:"needed"` // no code can run without it
	Detail string `json:"detail"` // what was observed, or why the trial failed
	Fix    string `json:"fix"`    // the command or setting that fixes it; empty if OK, or if no fix is known
}
