package relay

import (
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// TerminationLog is the file of a pod's last message, where the kubelet mounts it unless the pod's template names another
// path. It is on the node's disk, everybody may write to it, and no pod can be without it. It holds no directory, so
// it does not count against the read-only root; its size is not bounded, so there is no disk quota beside it.
const TerminationLog = "/dev/termination-log"

const (
	tablePart  = 4 << 10 // the kernel gives at most a page of the table at a time
	usualParts = 3       // of the table of a container
	mostParts  = 15      // that fit into an answer
	unknown    = "a mount that could not be seen"
)

// inMemory are the types of file systems that have nothing on a disk. Their files are memory, which the sandbox's
// limit holds, or the kernel's own. "dev" is gVisor's devtmpfs.
var inMemory = []string{"tmpfs", "devtmpfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "dev"}

// disks returns the mounts of disks besides the root and the known places that programs may write to, such as a
// volume that an image declares. Every directory counts that is not mounted read-only, whatever its mode: programs may
// be able to write to what lies below. A file counts if it can be opened for writing. If the table of mounts cannot be
// read, or is longer than that of a container, disks returns an unknown mount.
func (c *conn) disks() []string {
	table, ok := c.mounts(usualParts)
	if !ok {
		table, ok = c.mounts(mostParts)
	}
	if !ok {
		return []string{unknown}
	}
	all := writable(table)
	if len(all) == 0 {
		return nil
	}
	if len(all) > maxCalls/2 {
		return []string{unknown}
	}
	l := c.list()
	for _, at := range all {
		fd := l.try("openat", num(atFDCWD), l.str(at), num(openWrite|openCloexec|openNonblock|openNoTTY), num(0))
		l.try("close", result(fd))
	}
	r, err := c.run(l)
	if err != nil {
		return []string{unknown}
	}
	const eacces, erofs = -13, -30
	var disks []string
	for i, at := range all {
		if got := r.results[2*i]; got != eacces && got != erofs { // EISDIR of a directory
			disks = append(disks, at)
		}
	}
	return disks
}

// mounts reads the table of mounts. It returns false if the table has more than the given number of parts.
func (c *conn) mounts(parts int) (table string, ok bool) {
	l := c.list()
	l.size = tablePart * parts
	fd := l.do("openat", num(atFDCWD), l.str("/proc/self/mountinfo"), num(openCloexec), num(0))
	for i := range parts {
		l.do("read", result(fd), answer(tablePart*i), num(tablePart))
	}
	l.finally("close", result(fd))
	r, err := c.run(l)
	if err != nil || len(r.bytes) != l.size {
		return "", false
	}
	var b strings.Builder
	for i := range parts {
		n, failed := r.value(1 + i)
		if failed != nil || n > tablePart {
			return "", false
		}
		if n == 0 {
			return b.String(), b.Len() > 0
		}
		b.Write(r.bytes[tablePart*i:][:n])
	}
	return "", false // there is more
}

// writable returns the mounts of a table, see proc_pid_mountinfo(5), that are on a disk and not read-only, but for the
// root and the known places, whose sizes are observed. A line that cannot be read is an unknown mount.
func writable(table string) []string {
	known := []string{"/"} // look tries to write to the root
	for _, p := range places(backend.Spec{}) {
		known = append(known, p.Path)
	}
	var all []string
	for line := range strings.Lines(table) {
		mount, system, cut := strings.Cut(line, " - ")
		m, s := strings.Fields(mount), strings.Fields(system)
		switch {
		case !cut || len(m) < 6 || len(s) < 2:
			all = append(all, unknown)
		case slices.Contains(inMemory, s[0]), slices.Contains(known, m[4]), readOnly(m[5]), readOnly(s[len(s)-1]):
		default:
			all = append(all, plainfile.Unescape(m[4]))
		}
	}
	return all
}

// WeakDisks says to which mounts of disks programs can write.
func (s Seen) WeakDisks() (weak []string) {
	for _, at := range s.Disks {
		weak = append(weak, "disk: programs can write to "+sandboxmcp.Quote(at)+", whose size nothing bounds")
	}
	return weak
}

func readOnly(options string) bool { return slices.Contains(strings.Split(options, ","), "ro") }
