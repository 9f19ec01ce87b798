package process

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// isHostRoot reports whether the process is root of the host. Root of a user namespace, as in a
// rootless container, is an ordinary user to the kernel and has no user ids to assign.
func isHostRoot() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	return os.Geteuid() == 0 && err == nil && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return strings.TrimRight(string(u.Release[:]), "\x00")
}
