package process

import "github.com/sandboxmcp/sandboxmcp/backend"

// Containers starts the containers of a container engine. If Config has one, each sandbox is a
// container: the engine makes its namespaces, mounts and control group, and the backend adopts the
// init that runs as its first process. Everything else is the same.
//
// Its methods may be called concurrently.
type Containers interface {
	// Name is the backend's name in settings and results.
	Name() string

	// Start starts a container and waits a limited time until its init has connected. It has no
	// context: a container that is late for its caller is kept for the next one. Errors are
	// *sandboxmcp.Error. If it fails, it leaves nothing behind.
	Start(spec ContainerSpec) (*Container, error)
}

// ContainerSpec describes a container.
type ContainerSpec struct {
	ID          string
	Image       string // see backend.Spec
	UID         int    // user and group of its programs, which no other sandbox has
	MemoryBytes int64
	CPUCores    float64
	MaxTasks    int               // its init included
	Tmpfs       map[string]string // options of the file systems in memory, by path
	Trees       []backend.Tree    // shown read-only
}

// Container is a container whose init has connected.
type Container struct {
	PID     int          // of init on this machine
	Control int          // descriptor of init's socket; the receiver closes it
	PIDFD   int          // pidfd of init; the receiver closes it
	Weak    []string     // what its walls do not hold
	Remove  func() error // ends and removes the container; its waits are bounded
}
