package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// plainPrefix begins the names of the directories that sandboxes of tier L1
// live in; their server's process number follows.
const plainPrefix = "sandboxmcp-"

// sweepPlain removes what dead servers left of sandboxes of tier L1. A process
// number that somebody else has by now spares it until that one has ended too.
func sweepPlain(tempDir string) {
	dirs, err := filepath.Glob(filepath.Join(tempDir, plainPrefix+"*-*"))
	if err != nil {
		return
	}
	for _, d := range dirs {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), plainPrefix), "-")
		pid, err := strconv.Atoi(number)
		var st unix.Stat_t
		if err != nil || pid <= 0 || unix.Lstat(d, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
			continue
		}
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.RemoveAll(d)
		}
	}
}

// plainReadable is what code may read of the host in tier L1: programs and
// libraries, and the parts of /etc that they need. Not /proc, not /etc as a
// whole, nobody's home.
func plainReadable(extra []string) []string {
	all := append([]string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
		"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/fonts",
	}, extra...)
	there := all[:0]
	for _, p := range all {
		if _, err := os.Stat(p); err == nil {
			there = append(there, p)
		}
	}
	return there
}
