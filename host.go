package sandboxmcp

import "time"

// HostCommand is a command of the host.
type HostCommand struct {
	Command string        `json:"command"`              // one simple command of literal words, without a shell
	Argv    []string      `json:"argv,omitempty"`       // its words; Command is then only a label
	Timeout time.Duration `json:"timeout_ns,omitempty"` // 0: 120 s; at most an hour
	Dir     string        `json:"cwd,omitempty"`        // absolute; empty: the first of host_roots
}

// HostOutput is the result of a command of the host. A command that fails is no error.
type HostOutput struct {
	Success         bool     `json:"success"`
	Stdout          string   `json:"stdout"`
	Stderr          string   `json:"stderr"`
	ExitCode        int      `json:"exit_code"` // 128+n if a signal ended it; -1 if it was stopped
	StdoutTruncated bool     `json:"stdout_truncated,omitempty"`
	StderrTruncated bool     `json:"stderr_truncated,omitempty"`
	Rule            string   `json:"rule"`              // what allowed it
	Walls           []string `json:"walls"`             // observed
	Weak            []string `json:"weak"`              // what does not hold it
	Warning         string   `json:"warning,omitempty"` // a setting that is dangerous
}

// HostAsk asks a person to allow a command.
type HostAsk struct {
	Pattern string        `json:"pattern"` // the command; a word * stands for one word
	Reason  string        `json:"reason,omitempty"`
	Wait    time.Duration `json:"wait_ns,omitempty"` // how long to wait for the answer; 0: do not wait
}

// HostAccess lists the rules of host commands.
type HostAccess struct {
	Allowed     []string       `json:"allowed"`
	Approved    []AccessGrant  `json:"approved"`
	Blocked     []string       `json:"blocked"`
	Pending     []HostApproval `json:"pending"`
	Enabled     bool           `json:"enabled"`
	AutoApprove bool           `json:"auto_approve"`
}

// HostApproval is a question about a host command.
type HostApproval struct {
	Approval
	Warning string `json:"warning,omitempty"` // why the command is dangerous
}

// HostRead reads a file of the host.
type HostRead struct {
	Path     string `json:"path"`
	MaxBytes int    `json:"max_bytes,omitempty"` // 0: 50000
	Offset   int64  `json:"offset,omitempty"`
}

// HostContent is a file of the host, or a part of it.
type HostContent struct {
	Success   bool   `json:"success"`
	Content   string `json:"content"`
	Truncated bool   `json:"truncated"` // the file goes on after Content
	Size      int64  `json:"size"`      // of the whole file
	Encoding  string `json:"encoding"`  // utf-8, or base64 for what is no text
}

// HostWrite writes a file of the host.
type HostWrite struct {
	Path      string `json:"path"`
	Content   string `json:"content"`
	Overwrite bool   `json:"overwrite"`
}

// HostWritten is the result of a [HostWrite].
type HostWritten struct {
	Success      bool   `json:"success"`
	Path         string `json:"path"`
	BytesWritten int    `json:"bytes_written"`
}

// HostListing is the content of a directory of the host.
type HostListing struct {
	Success bool        `json:"success"`
	Listing string      `json:"listing"` // a line for each entry
	Entries []HostEntry `json:"entries"`
	More    int         `json:"more,omitempty"` // entries that are left out
}

// HostEntry is an entry of a directory of the host.
type HostEntry struct {
	Name  string    `json:"name"`
	Type  string    `json:"type"` // file, dir, link or other
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
}

// HostCopy copies a file of the host into a session, or into the workspace.
type HostCopy struct {
	Source      string    `json:"source"`
	Destination string    `json:"destination,omitempty"` // name there; empty: that of Source
	SessionID   SessionID `json:"session_id,omitempty"`  // empty: the workspace
}

// HostCopied is the result of a [HostCopy].
type HostCopied struct {
	Success bool   `json:"success"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
}
