package relay

// Walls around the programs of a relay, by the names of package jail and package cgroup.
const (
	WallRoot     = "read-only root"
	WallSeccomp  = "seccomp"
	WallNoVsock  = "no vsock"
	WallNNP      = "no_new_privs"
	WallNoCaps   = "no capabilities"
	WallUnpriv   = "not the host's root"
	WallQuota    = "disk quota"
	WallLandlock = "landlock"
	WallMemory   = "memory limit"
	WallTasks    = "task limit"

	// WeakFiles is reported if the bytes of files are bounded and their number is not.
	WeakFiles = "disk quota: of bytes; the number of files is bounded by memory alone"
)
