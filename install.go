package sandboxmcp

import "time"

// InstallAsk asks for packages of an index.
type InstallAsk struct {
	Language  Language          `json:"language"`             // python or node
	Packages  []string          `json:"packages"`             // at most 50 specs, such as requests>=2 or express@^4; no options, URLs or paths
	SessionID SessionID         `json:"session_id,omitempty"` // live session that gets them; empty: all later runs of the namespace
	Note      func(text string) `json:"-"`                    // gets progress, one line at a time; it must not block; may be nil
}

// Installation is the answer to an [InstallAsk]. A failure is an error; its field rejected
// has what Rejected would have.
type Installation struct {
	Success   bool               `json:"success"`
	Output    string             `json:"output"`    // for a person
	Installed []InstalledPackage `json:"installed"` // dependencies included
	Rejected  []RejectedPackage  `json:"rejected"`  // packages, or some of their versions, that were left out
}

// InstalledPackage is a package that was installed.
type InstalledPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"` // of the wheel or tarball
}

// RejectedPackage is a package, or some versions of it, that was left out.
type RejectedPackage struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// PackageSet is what one call has installed for the later runs of a namespace.
type PackageSet struct {
	ID        string             `json:"id"` // SHA-256 of its content
	Language  Language           `json:"language"`
	Requested []string           `json:"requested"` // the specs of the call
	Packages  []InstalledPackage `json:"packages"`  // dependencies included; empty if the set is gone from the disk
	Bytes     int64              `json:"bytes"`     // of the unpacked files
	AddedAt   time.Time          `json:"added_at"`
}
