package process

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// isHostRoot reports whether the process is root of the host. Root of a user namespace, as in a
// rootless container, is an ordinary user to the kernel and has no user ids to assign.
func isHostRoot() bool { return os.Geteuid() == 0 && jail.WholeMap() }

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return strings.TrimRight(string(u.Release[:]), "\x00")
}
