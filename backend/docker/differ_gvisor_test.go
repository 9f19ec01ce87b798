package docker_test

// differOfGVisor lists what attacks meet in gVisor and not in a jail.
var differOfGVisor = map[string]string{
	// The image's own files are seen, as with runc. gVisor has a /sys of its own, which shows nothing of this machine.
	"a01-read-host.py home":       "[]",
	"a01-read-host.py etc":        "ok 1",
	"a01-read-host.py sys":        "ok",
	"a03-dotdot.py fchdir":        "the host",
	"a12-release-agent.sh sys":    "there",
	"a12-release-agent.sh mounts": "cgroup",
	"b01-other-files.py siblings": "['.sandboxmcp']",
	// Ids, ranks and scores are of gVisor's kernel, and this machine's takes no notice of them.
	"a11-proc-sys.py uid_map":         "ok",
	"a11-proc-sys.py oom":             "ok",
	"a24-status.py securebits":        "0",
	"a24-status.py maps":              "['         0          0 4294967295', '']",
	"a24-status.py dumped-more":       "ok",
	"d13-clock-and-rank.py oom":       "ok",
	"d13-clock-and-rank.py oom-score": "-1000",
	"d13-clock-and-rank.py nice":      "ok",
	"d13-clock-and-rank.py fifo":      "EINVAL",
	"d13-clock-and-rank.py priority":  "ok",
	// gVisor has more devices. /dev/net/tun and /dev/fuse are its own, and need rights that no program has.
	"a13-devices.py fuse": "ok",
	"a13-devices.py tun":  "ok",
	"a13-devices.py tty":  "ENXIO",
	// Every container has device nodes of its own.
	"a13-devices.py touched": "*",
	// gVisor knows no other table of system calls.
	"a17-foreign-tables.py int80": "other -38",
	// Mounts, namespaces and users are gVisor's and the image's.
	"a24-view.py own-namespaces":   "ENOENT",
	"a24-view.py cgroup":           "*",
	"a24-view.py writable":         "*",
	"a24-view.py writable-devices": "pts",
	"a24-view.py unknown-mounts":   "*",
	"a24-view.py devices":          "*",
	"a24-view.py users":            "*",
	// gVisor has none of these calls, or other errors for them.
	"d24-endless-calls.py small-free":   "EINVAL",
	"d24-endless-calls.py small-needed": "ok",
	"a35-kernel-pools.py options":       "*",
	"a35-kernel-pools.py high":          "*",
	"a40-host-locks.py locks":           "ENOENT",
	"a43-switches.py kernel":            "*",
	"a43-switches.py shown":             "*",
	// There is no Landlock. The kernel discards writes to /dev/zero.
	"a37-shared-zero.py zero":            "ok",
	"a37-shared-zero.py zero-only-write": "ok",
	"a37-shared-zero.py zero-truncate":   "ok",
	// All addresses of IPv4 are those of loopback, where nothing listens; a datagram to them is lost.
	// With a network, they lead to the server's listeners.
	"c01-python-network.py tcp":          "ECONNREFUSED",
	"c01-python-network.py fastopen net": "EPIPE",
	"c01-python-network.py udp":          "ok",
	"c01-python-network.py fastopen":     "EPIPE",
	"c01-python-network.py metadata":     "ECONNREFUSED",
	"c01-python-network.py raw-call":     "ECONNREFUSED",
	"c02-node-network.js tcp":            "ECONNREFUSED",
	"c02-node-network.js udp":            "ok",
	"c02-node-network.js lookup":         "timeout",
	"c02-node-network.js binding":        "ok",
	"c03-shell-network.sh dev-udp":       "ok",
	// Inodes are memory of gVisor's kernel, which is limited as a whole; weak says so.
	"d03-disk.py inodes": "no limit",
}
