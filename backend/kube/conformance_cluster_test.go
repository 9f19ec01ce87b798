package kube_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
)

// TestConformance runs the suite in pods, each made for its sandbox.
func TestConformance(t *testing.T) {
	needClosed(t)
	waitForRoom(t) // pods of earlier tests are mounts of this machine
	backendtest.Run(t, backendtest.Options{
		New:    func(t testing.TB) backend.Backend { t.Helper(); return newKube(t) },
		Python: "/usr/bin/python3", Node: "/usr/bin/node", Bash: "/bin/bash", Curl: "/usr/bin/curl",
		Tier: sandboxmcp.TierL1, HeldLimits: true, LeastTasks: 1, Closed: "ECONNREFUSED", Differ: differ, Lacks: lacks,
	})
}

// lacks lists laws that pods do not keep, or that cannot be judged from outside of the cluster's nodes.
var lacks = map[string]string{
	"OpenRefusesWhatItCannotReach":      "a node removes the mounts of an ended pod a little later, and a test cluster's nodes are this machine",
	"OpenIsTakenDownWhenItsContextEnds": "as before; TestCancelledOpensLeaveNoPods counts pods",
	"OpenShowsReadOnlyDirs":             "no directory of the server's machine can be shown in a pod, and Open says so",
	"OpenShowsADirectoryElsewhere":      "as before",
	"SignalReachesTheProcessAlone":      "the relay takes a signal to an ended process for delivered; TestSignals sends others",
	"FilesOfAClosedDirectoryAreListed":  "a program cannot shut its working directory, which belongs to the pod's volume",
	"UsageIsThatOfThePrograms":          "a kernel with cgroup v1 keeps no peak of tasks",
	"LocksAreCounted":                   "nothing counts kernel objects in a pod, and weak says so",
	"TablesWithoutMemoryAreCounted":     "nothing counts kernel objects in a pod, and weak says so",
	"MappingsAreCounted":                "as before",
	"ConnectionsAreCounted":             "as before",
	"PortsAreCounted":                   "as before",
	"WaitingSendersAreCounted":          "as before",
	"SocketsAreCounted":                 "as before",
	"DirectoriesAreCounted":             "as before",
	"KillsAreCounted":                   "as before",
	"Networks":                          "tier L1 has none elsewhere; TestEgress reaches hosts by the proxy",
	"a12-release-agent.sh":              "the runtime shows the container's own control groups, read-only",
}

// differ lists outcomes of attacks that differ from those of a sandbox of Landlock alone.
var differ = map[string]string{
	// The image's own files are seen, and a /sys that the runtime mounts read-only.
	"a01-read-host.py shadow":      "ENOENT",
	"a01-read-host.py home":        "[]",
	"a01-read-host.py etc":         "ok 1",
	"a01-read-host.py cmdline":     "ok",
	"a01-read-host.py sys":         "ok",
	"a43-switches.py kernel":       "*",
	"a43-switches.py shown":        "*",
	"a03-dotdot.py hostname":       "*", // the pod's name
	"a03-dotdot.py listing":        "ok",
	"a03-dotdot.py fchdir":         "the host", // the image's root
	"a07-proc-peek.py seen":        "own only",
	"a24-view.py groups":           "*", // that of the pod
	"a24-view.py cgroup":           "*", // the path of the pod's group on its node
	"a24-view.py writable":         "*", // by the modes of files; Landlock refuses more
	"a24-view.py devices":          "*",
	"a24-view.py writable-devices": "*",
	"a24-view.py unknown-mounts":   "*",
	"b01-other-files.py processes": "none",
	// The pod has namespaces, and no user namespace unless it is asked for.
	"a24-view.py own-namespaces": "*",
	"a24-status.py securebits":   "0",
	"a24-status.py maps":         "['         0          0 4294967295', '']",
	"a24-status.py dumped":       "*", // which parts a core dump has; no core is written
	// Sockets can be made: a policy closes the pod's network, and its loopback is its own.
	"a19-socket-families.py families":     "1 2", // no IPv6, which policies may not hold
	"a19-socket-families.py raw":          "EPERM",
	"a34-netlink.py loopback":             "ok",
	"a35-kernel-pools.py buffers":         "unchanged",
	"b01-other-files.py abstract":         "ECONNREFUSED",
	"b01-other-files.py datagram":         "ENOENT",
	"d24-endless-calls.py many-datagrams": "ENOSYS",
	"d24-endless-calls.py few-datagrams":  "ok",
	"b01-other-files.py port":             "ECONNREFUSED",
	"b08-port.py bind":                    "ok",
	"b08-port.py loopback":                "hello",
	"c01-python-network.py tcp":           "ECONNREFUSED|EHOSTUNREACH|timeout",
	"c01-python-network.py tcp6":          "EAFNOSUPPORT",
	"c01-python-network.py udp":           "ok", // sent, and dropped
	"c01-python-network.py fastopen":      "ECONNREFUSED|EHOSTUNREACH|timeout",
	"c01-python-network.py metadata":      "ECONNREFUSED|EHOSTUNREACH|timeout",
	"c01-python-network.py raw-call":      "ECONNREFUSED|EHOSTUNREACH|timeout",
	"c01-python-network.py docker":        "ENOENT",
	"c01-python-network.py host-socket":   "ENOENT",
	"c01-python-network.py host-abstract": "ECONNREFUSED",
	"c01-python-network.py routes":        "2",
	"c02-node-network.js tcp":             "ECONNREFUSED|EHOSTUNREACH|timeout",
	"c02-node-network.js udp":             "ok",
	"c02-node-network.js lookup":          "timeout",
	"c02-node-network.js binding":         "ok",
	"c03-shell-network.sh dev-udp":        "ok",
	// Modes and attributes are those of the image's files and of the pod's volumes.
	"a13-devices.py touched":           "ok",
	"a35-kernel-pools.py access-list":  "ENOSPC",
	"a35-kernel-pools.py default-list": "ENOSPC",
	// Stricter: the filter refuses, or there is a quota.
	"a35-kernel-pools.py attribute": "EPERM",
	"a41-lock-holders.py rules":     "ENOSYS",
	"d03-disk.py work":              "ENOSPC within the quota",
	"d03-disk.py reserve":           "ENOSPC within the quota",
	"d03-disk.py nameless":          "ENOSPC within the quota",
	"d03-disk.py tmp":               "ENOSPC within the quota",
	"d03-disk.py shm":               "ENOSPC within the quota",
	"d03-disk.py inodes":            "no limit", // memory bounds them, and weak says so
	// A program may limit itself, by its own number.
	"a36-guard.py own-number": "ok",
	// The lists of the node can be read, and weak says so.
	"a40-host-locks.py locks":   "shown",
	"a42-host-lists.py lists":   "shown",
	"a42-host-lists.py symbols": "shown",
	// The kubelet's score of a pod; it cannot be lowered.
	"d13-clock-and-rank.py oom-score": "*",
}
