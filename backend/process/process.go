// Package process is the backend that builds sandboxes on this host's own kernel: with namespaces,
// cgroups, Landlock and seccomp, without Docker, and without root if the kernel allows that. A
// trial finds out how strong they are. What it reports of a sandbox is read back from the kernel.
package process

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// WorkspaceDir is where sandboxes see Config.Shown. At tier L1 they see it
// read-only at its own path.
const WorkspaceDir = "/workspace"

// Name is the backend's name in settings and results.
const Name = "process"

// Config configures the backend. The zero value works for an unprivileged user.
type Config struct {
	MinTier  sandboxmcp.Tier // weaker walls are not tried; empty: L2
	TempDir  string          // directory for the working directories of tier L1; empty: /tmp
	UIDs     UIDRange        // host user ids that a server started by root may use
	Root     string          // root file system whose system's directories sandboxes see in place of this machine's, and whose interpreters they use; absolute. Without namespaces, Open fails. Empty: this machine's
	ReadOnly []string        // directories that every sandbox sees in addition to the system's; absolute
	Shown    string          // directory that sandboxes see at WorkspaceDir, unless their Spec is Apart, and that may change; empty: none
	Writable bool            // programs may change the files in Shown. Without namespaces, Open fails
	CertFile string          // certificate authorities that programs with a network trust; empty: the system's
	NoPool   bool            // build everything anew for each sandbox: prepare and keep nothing
	MaxTasks int             // upper bound of the sum of all sandboxes' task limits; 0: a quarter of what the kernel allows
	Eager    bool            // prepare for a second request after the first one of a kind, and not after the second
	PoolIdle time.Duration   // empty sandboxes without demand are closed after this time; 0: 5 minutes
	Launcher *Launcher       // the backend uses or closes it; nil: none was started ahead
	Logger   *slog.Logger    // nil: none

	Containers Containers // starts a container for each sandbox; nil: sandboxes are jails of this package

	SearchPath   string   // PATH for the search of interpreters; empty, or with Root: /usr/local/bin:/usr/bin:/bin
	ShimEnv      []string // environment in which version-manager shims are run; nil: PATH from SearchPath only
	FindingsFile string   // file that caches found interpreters between processes, in a private directory; empty: no cache

	testOnlyNoCgroup     bool
	testOnlyNoNamespaces bool
	testOnlyForkAgain    bool // fork other processes of a sandbox than the first as well
	testOnlyEpollWatches int  // epoll watches of a user; 0: the kernel's number
}

// UIDRange is a range of host user and group ids. Blocks of 65536 are leased
// from it; the zero value is [DefaultUIDs].
type UIDRange struct{ First, Last int }

// DefaultUIDs returns a range between the ids that systemd and container engines use by default and
// the ids that file systems do not support.
func DefaultUIDs() UIDRange { return UIDRange{1_900_000_000, 1_933_554_431} }

// Weak spots, as reports show them.
const (
	weakMemory  = "memory: watched every 10 ms and ended, not held by the kernel (no delegated cgroup)"
	weakPlain   = "files: no namespaces, the host's system files can be read, names, sizes, modes and times of hidden files can be looked up, the working directory is not at /mnt/data and has no disk quota; programs cannot set times and attributes of files, nor modes unless the server is root"
	weakShared  = "/workspace: a directory of the host that all programs may change, without a quota"
	weakTasks   = "tasks: watched every 10 ms, not held by the kernel"
	weakSignals = "signals: programs can signal all processes of the server's user"
	weakUIDs    = "host user ids: a block chosen at random, because the server does not see the leases of servers in other containers"
	weakUser    = "queued signals and other counts per user are shared with the host's user"
)

// Limits of a control group that was changed from outside, or that the sandbox was moved out of.
const (
	weakMemoryLost = "memory: the limit of the control group is not in force, and nothing watches it"
	weakTasksLost  = "tasks: the limit of the control group is not in force"
)

// Kernel objects that no limit counts; docs/kernel-objects.md has the whole list.
const (
	weakKernelMemory = "memory of sockets, pipes and descriptors: the server watches bytes in pipes and Unix sockets, and allows 32 MiB in connections; it does not count descriptors, or up to 64 MiB in pipes that no descriptor refers to"
	weakUnix         = "memory of Unix sockets: not counted"
	weakObjects      = "file locks, connections, open directories, queued datagrams: watched, not held"
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
