// Package process is the backend that builds sandboxes on this host's own
// kernel: namespaces, cgroups, Landlock and seccomp, without Docker and without
// root where the kernel allows that. How strong they are is found out by a
// trial, and what is reported of each is read back from it.
package process

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Name is the backend's name in settings and results.
const Name = "process"

// Config says where the backend finds what it needs. The zero value works for
// an unprivileged user.
type Config struct {
	MinTier  sandboxmcp.Tier // weaker walls are not even tried; empty: L2
	TempDir  string          // where tier L1 keeps its working directories; empty: /tmp
	UIDs     UIDRange        // host user ids that a root server may use
	ReadOnly []string        // directories that every sandbox sees besides the system's own; absolute
	CertFile string          // certificate authorities that programs with a network are to trust; empty: the system's
	NoPool   bool            // make everything anew for each sandbox: nothing ahead, and nothing kept of a dead one for the next
	MaxTasks int             // kernel tasks that the limits of all sandboxes may add up to; 0: a quarter of what the kernel allows
	PoolIdle time.Duration   // empty sandboxes that nobody wants for so long go; 0: 5 minutes
	Logger   *slog.Logger    // nil: none

	SearchPath   string   // PATH on which interpreters are looked for; empty: the system's
	ShimEnv      []string // environment in which version-manager shims are asked; nil: SearchPath alone
	FindingsFile string   // where found interpreters are kept between processes, in a private directory; empty: nowhere

	testOnlyNoCgroup     bool
	testOnlyNoNamespaces bool
	testOnlyForkAgain    bool // not only the first process of a sandbox
	testOnlyEpollWatches int  // epoll watches of a user; 0: the kernel's number
}

// UIDRange is a range of host user and group ids. Blocks of 65536 are leased
// from it; the zero value is [DefaultUIDs].
type UIDRange struct{ First, Last int }

// DefaultUIDs lies between the ids that systemd and container engines use by
// default and those that no file system takes.
func DefaultUIDs() UIDRange { return UIDRange{1_900_000_000, 1_933_554_431} }

// weak spots, as reports tell them.
const (
	weakMemory = "memory: watched every 10 ms and ended, not held by the kernel (no delegated cgroup)"
	weakPlain  = "files: no namespaces, the host's system files can be read, the working directory is not at /mnt/data and has no disk quota"
	weakIPC    = "IPC: System V and POSIX message queues are those of the host"
	weakTasks  = "tasks: watched every 10 ms, not held by the kernel"
	weakUser   = "queued signals and other counts per user are shared with the host's user"
)

// Kernel objects that no limit counts; docs/kernel-objects.md is the whole list.
const (
	weakKernelMemory = "memory of sockets, pipes, mappings and descriptors: not counted; bytes in connections are watched every 200 ms"
	weakObjects      = "file locks, connections, queued datagrams: watched, not held"
	weakEpoll        = "epoll watches: counted twice a second and ended above an eighth of what the host's user may have, not held by the kernel"
)

func weakCPU(cores float64) string {
	return "cpu: pinned to " + strconv.Itoa(wholeCores(cores)) + " core(s), a fraction is kept by stopping and continuing the program, not by the kernel (no delegated cgroup)"
}

func wholeCores(cores float64) int {
	n := int(cores)
	if float64(n) < cores {
		n++
	}
	return max(n, 1)
}
