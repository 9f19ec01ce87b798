package jail

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// InsideUID is the user and group that code runs as, in its own user namespace, and
// InsideUser is their name. The namespace has no other.
const (
	InsideUID  = 1000
	InsideUser = "sandbox"
)

// Size has the limits of one sandbox.
type Size struct {
	WorkBytes, WorkInodes int64 // size and inodes of /mnt/data
	TempBytes             int64 // size of /tmp, and of /dev/shm
	MaxTasks              int   // processes and threads, not counting init
	DataBytes             int64 // RLIMIT_DATA of each process, for hosts without a memory cgroup; processes with it get no huge pages. 0: no limit
	CPUSeconds            int64 // CPU time of each process; 0: no limit
}

// wall names one wall that the script builds. Tests leave walls out by name.
type wall string

const (
	wallIDs      wall = "ids"
	wallCgroupNS wall = "cgroup namespace"
	wallCaps     wall = "capabilities"
	wallNNP      wall = "no_new_privs"
	wallLandlock wall = "landlock"
	wallSeccomp  wall = "seccomp"
	wallCommon   wall = "common seccomp filter"
	wallRlimits  wall = "rlimits"
	wallMounts   wall = "mounts"
	wallDump     wall = "dumpable"
)

// plan is the input of wallScript and childWalls.
type plan struct {
	size      Size
	root      bool   // the server is root: supplementary groups can and must be dropped
	plain     *plain // tier L1: no namespaces; nil otherwise
	tasks     int    // number of cgroup v1 "tasks" files whose descriptors the process receives
	abi       int    // Landlock ABI version
	filter    []byte // seccomp program
	wantProc  bool   // return descriptors of the sandbox's /dev/shm and /proc to the server
	terminal  bool   // mount /dev/pts and return a descriptor of its ptmx
	shared    Shared // see Config
	own       bool   // the sandbox gets a mount of it of its own, as the first descriptor
	apart     bool   // it does not see it
	container bool   // the process is PID 1 of a container, whose engine has made the mounts
	notices   bool   // the filter makes calls wait for init, see Config.Notices
	lists     lists  // which directories of the host's /proc are to be covered
	off       map[wall]bool
	without   uint64 // tests only: namespaces that a fork does not enter
}

// plain describes a sandbox without a mount namespace: its directories on the host
// and the host's files that it may read.
type plain struct {
	uid                 int // user id to switch to; -1: keep the server's
	work, temp, program string
	readable            []string
}

// probes holds positions in the output of a script: of each probe's result, and of the
// descriptors of the Landlock ruleset and of /dev/pts/ptmx. -1 means absent.
type probes struct{ landlock, vsock, setns, vmsplice, setID, ruleset, ptmx int }

// none is an invalid descriptor. setns on it fails with EBADF if the process has no filter
// or only a zygote's. It fails with EPERM under the sandbox's own filter. vmsplice on it fails with EBADF
// without a filter and under Config.Filter alone if that is only the rest, and with ENOSYS under Config.Common.
var none = num(uint32(math.MaxUint32))

// Indexes into [Slot.Dirs], in the order in which a script returns them.
const (
	DirWork    = iota // /mnt/data
	DirProgram        // /run/program
	DirTemp           // /tmp
	DirShm            // /dev/shm, if SlotConfig.WantProc
	DirProc           // /proc of the sandbox, if SlotConfig.WantProc
)

// wallScript puts every wall around the process that runs it. The order is forced:
// mounts and the cgroup need capabilities, so they come before these are dropped;
// Landlock forbids mounts; seccomp comes last because it forbids most of these calls.
// The server makes the cgroup at the same time and then sends its descriptors. Init
// enters the cgroup before any file is put into the sandbox or any program starts.
func wallScript(p plan) (*script, probes) {
	s := &script{}
	s.firstOutOfMemory(p.plain != nil || p.container)
	if p.plain != nil || p.container { // else inherited from the builder
		s.dumpsNothing()
	}
	if !p.off[wallCaps] && p.plain != nil { // before the switch from the host's root to another user, which drops CAP_SETPCAP
		s.boundRights()
	}
	if !p.off[wallIDs] && !p.container {
		s.ids(p)
	}
	if p.plain != nil || p.container {
		s.try("setsid", unix.SYS_SETSID) // PID 1 of a container leads a session already
	}
	s.do("umask", unix.SYS_UMASK, num(0o022))
	pr := probes{ruleset: -1, ptmx: -1}
	switch {
	case p.container:
		s.containerPlaces()
	case p.plain == nil:
		pr.ptmx = s.places(p)
	default:
		s.do("become subreaper", unix.SYS_PRCTL, num(unix.PR_SET_CHILD_SUBREAPER), num(1))
		s.enterCgroup(p.tasks)
		s.open(p.plain.work, p.plain.program, p.plain.temp)
	}
	if !p.off[wallCaps] {
		if p.plain == nil {
			s.boundRights()
		}
		s.dropRights()
	}
	if !p.off[wallNNP] {
		s.do("no_new_privs", unix.SYS_PRCTL, num(unix.PR_SET_NO_NEW_PRIVS), num(1), num(0), num(0), num(0))
	}
	if !p.off[wallDump] {
		s.do("not dumpable", unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(0))
	}
	if !p.off[wallRlimits] {
		s.rlimits(p)
	}
	if !p.off[wallLandlock] {
		pr.ruleset = s.landlock(p)
	}
	program := programPlace
	if p.plain != nil {
		program = p.plain.program
	}
	pr.landlock = s.probe("look: write below "+program, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(program+"/.probe"), num(unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC), num(0o600))
	s.childSignals()
	if !p.off[wallSeccomp] {
		if listener := s.seccomp(p.filter, p.notices); p.notices {
			s.keepListener(listener)
		}
	}
	s.filterProbes(&pr)
	return s, pr
}

// filterProbes makes calls whose errors show which filter is loaded.
func (s *script) filterProbes(pr *probes) {
	pr.vsock = s.probe("look: vsock", unix.SYS_SOCKET, num(unix.AF_VSOCK), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), num(0))
	pr.setns = s.probe("look: setns", unix.SYS_SETNS, none, num(0))
	pr.vmsplice = s.probe("look: vmsplice", unix.SYS_VMSPLICE, none, num(0), num(0), num(0))
	pr.setID = s.probe("look: set-user-ID", unix.SYS_FCHMOD, none, num(unix.S_ISUID))
}

func (s *script) ids(p plan) {
	uid := InsideUID
	if p.plain != nil {
		uid = p.plain.uid
	}
	if p.root {
		s.do("setgroups", unix.SYS_SETGROUPS, num(0), num(0))
	}
	if uid >= 0 {
		s.do("setresgid", unix.SYS_SETRESGID, num(uid), num(uid), num(uid))
		s.do("setresuid", unix.SYS_SETRESUID, num(uid), num(uid), num(uid))
	}
}

// controlSocket is the descriptor of init's socket, CTL in init.c.
const controlSocket = 3

const (
	runPlace     = "/run"
	programPlace = "/run/program"
	bridgePlace  = "/run/bridge"
)

// keyLists returns those of bounds.KeyLists that there are.
var keyLists = sync.OnceValue(func() (there []string) {
	for _, list := range bounds.KeyLists {
		if _, err := os.Lstat(list); err == nil {
			there = append(there, list)
		}
	}
	return there
})

// haveLongList reports whether the kernel has bounds.LongList.
var haveLongList = sync.OnceValue(func() bool {
	_, err := os.Lstat(bounds.LongList)
	return err == nil
})

// lists says which of bounds.HostLists there are.
type lists [len(bounds.HostLists)]bool

// haveLists returns which of bounds.HostLists a directory like /proc has.
func haveLists(proc string) (there lists) {
	var st unix.Stat_t
	for i, list := range bounds.HostLists {
		there[i] = unix.Lstat(proc+"/"+list, &st) == nil
	}
	return there
}

// flagsOf returns the flags of the mount of a place.
func flagsOf(at bounds.Place) uintptr {
	if at.NoExec {
		return unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	}
	return unix.MS_NOSUID | unix.MS_NODEV
}

// places mounts the sandbox's writable directories and /proc, enters the cgroup, and
// opens the directories for the server. It returns the index of the descriptor of
// /dev/pts/ptmx among the returned ones; -1: /dev/pts is not mounted.
func (s *script) places(p plan) (ptmx int) {
	for _, at := range bounds.Places(p.size.WorkBytes, p.size.WorkInodes, p.size.TempBytes) {
		if at.Path == runPlace || !p.off[wallMounts] {
			s.mount(path.Base(at.Path), at.Path, "tmpfs", flagsOf(at), at.Options())
		}
	}
	s.do("mkdir "+programPlace, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(programPlace), num(0o755))
	s.do("symlink "+bridgePlace, unix.SYS_SYMLINKAT, s.str(programPlace+"/bridge"), num(unix.AT_FDCWD), s.str(bridgePlace))
	s.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=2")
	s.sharedPlace(p)
	// Reading the list of locks keeps every process of the host from locking a file. The mount is
	// read-only, as the one of the empty file is.
	s.mount(emptyPlace, bounds.LockList, "none", unix.MS_BIND, "")
	if haveLongList() {
		s.mount(emptyPlace, bounds.LongList, "none", unix.MS_BIND, "")
	}
	s.mount(kernelPlace, "/proc/sys", "none", unix.MS_BIND, "")
	for i, there := range p.lists {
		if there {
			s.mount(ptysPlace, "/proc/"+bounds.HostLists[i], "none", unix.MS_BIND, "") // nothing is mounted there yet
		}
	}
	if !p.root && !p.container { // the programs' user has keys of its own on the host; a container covers these itself
		for _, list := range keyLists() {
			s.mount(emptyPlace, list, "none", unix.MS_BIND, "")
		}
	}
	s.enterCgroup(p.tasks)
	if !p.off[wallCgroupNS] { // this comes after the cgroup was entered, because the namespace shows the current group as its root
		s.do("cgroup namespace", unix.SYS_UNSHARE, num(unix.CLONE_NEWCGROUP))
	}
	s.open("/mnt/data", programPlace, "/tmp")
	if p.wantProc {
		s.open("/dev/shm", "/proc")
	}
	ptmx = -1
	if p.terminal {
		// an instance of its own, whose terminals no other sandbox and no process of the host sees
		s.mount("ptys", ptysPlace, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, fmt.Sprintf("newinstance,uid=%d,gid=%d,mode=600,ptmxmode=666,max=%d", InsideUID, InsideUID, maxTerminals))
		// Programs may not make terminals: what is written to a master is processed by a kernel
		// thread, whose time no CPU limit counts. A descriptor does not see the mount that
		// covers ptmx afterwards.
		ptmx = s.give(s.keep("open "+ptmxPlace, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(ptmxPlace), num(unix.O_PATH|unix.O_CLOEXEC), num(0)))
		s.mount("/dev/null", ptmxPlace, "none", unix.MS_BIND, "")
	}
	return ptmx
}

const (
	ptysPlace    = "/dev/pts"
	ptmxPlace    = ptysPlace + "/ptmx"
	maxTerminals = 8 // pairs of a sandbox
)

// firstOutOfMemory makes the kernel kill this process and its children first when the host
// runs out of memory. It must run before the change of ids, which removes the right to
// write the file. optional allows it to fail, as it does with a read-only /proc.
func (s *script) firstOutOfMemory(optional bool) {
	flags := uint32(0)
	if optional {
		flags = mayFail
	}
	s.ownFile("/proc/self/oom_score_adj", "1000", flags)
}

// dumpsNothing excludes the memory of this process and its children from core dumps, even
// after execve. Since Linux 6.16 the host may receive dumps through a socket, which no
// resource limit prevents. A kernel without core dumps does not have this file.
func (s *script) dumpsNothing() { s.ownFile("/proc/self/coredump_filter", "0", mayFail) }

// ownFile writes a file in this process's own /proc directory.
func (s *script) ownFile(path, value string, flags uint32) {
	fd := s.reg()
	s.add("open "+path, unix.SYS_OPENAT, flags, fd, []arg{num(unix.AT_FDCWD), s.str(path), num(unix.O_WRONLY | unix.O_CLOEXEC), num(0)})
	s.add("set "+path, unix.SYS_WRITE, flags, 0, []arg{fd.arg(), s.str(value), num(len(value))})
	s.add("close "+path, unix.SYS_CLOSE, flags, 0, []arg{fd.arg()})
	s.free(fd)
}

// enterCgroup waits for a packet with n descriptors of cgroup v1 "tasks" files and
// enters the cgroup of each.
func (s *script) enterCgroup(n int) {
	if n == 0 {
		return
	}
	const head = 16 // struct cmsghdr
	size := (head + 4*n + 7) &^ 7
	control := make([]byte, size)
	for i := head; i < size; i++ {
		control[i] = 0xff // descriptor -1: if no descriptors arrive, the write below fails
	}
	rights := s.bytes(control)
	word := s.bytes(make([]byte, 8))
	iov := s.bytes(binary.LittleEndian.AppendUint64(make([]byte, 8), 8))
	msg := make([]byte, 56) // struct msghdr
	binary.LittleEndian.PutUint64(msg[24:], 1)
	binary.LittleEndian.PutUint64(msg[40:], uint64(head+4*n))
	m := s.bytes(msg)
	s.store("place of the packet", store64, iov, word)
	s.store("place of the vector", store64, at(m, 16), iov)
	s.store("place of the descriptors", store64, at(m, 32), rights)
	s.do("wait for the cgroup", unix.SYS_RECVMSG, num(controlSocket), m, num(unix.MSG_CMSG_CLOEXEC))
	zero := s.str("0") // "0" means the writer itself. Unlike a pid it does not need the kernel's lock over all processes
	for i := range n {
		fd := s.reg()
		s.add("descriptor of a cgroup", load32, 0, fd, []arg{at(rights, uint64(head+4*i))})
		s.do("enter cgroup", unix.SYS_WRITE, fd.arg(), zero, num(1)) // init closes it before it runs programs
		s.free(fd)
	}
}

// open opens directories and returns their descriptors to the server.
func (s *script) open(dirs ...string) {
	for _, d := range dirs {
		s.give(s.keep("open "+d, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(d), num(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC), num(0)))
	}
}

const secureBits = 0x2f // noroot and no_setuid_fixup, both locked; keep_caps off and locked

// lastCap returns the highest capability of the kernel.
var lastCap = sync.OnceValue(func() int {
	for c := 63; c > 0; c-- { // a set has 64 bits
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil {
			return c
		}
	}
	return 63
})

// boundRights empties the capability bounding set and locks the secure bits. Both
// need CAP_SETPCAP, so this comes before dropRights. The calls may fail; the server
// reads the resulting sets from /proc.
func (s *script) boundRights() {
	s.try("securebits", unix.SYS_PRCTL, num(unix.PR_SET_SECUREBITS), num(secureBits), num(0), num(0), num(0))
	for c := range lastCap() + 1 {
		s.try("drop capability from the bounding set", unix.SYS_PRCTL, num(unix.PR_CAPBSET_DROP), num(c), num(0), num(0), num(0))
	}
}

// dropRights empties the ambient, effective, permitted and inheritable capability sets.
func (s *script) dropRights() {
	s.try("clear ambient set", unix.SYS_PRCTL, num(unix.PR_CAP_AMBIENT), num(unix.PR_CAP_AMBIENT_CLEAR_ALL), num(0), num(0), num(0))
	head := binary.LittleEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	head = binary.LittleEndian.AppendUint32(head, 0)
	s.do("drop capabilities", unix.SYS_CAPSET, s.bytes(head), s.bytes(make([]byte, 24)))
}

// rlimits sets resource limits. They back up the cgroup; without a cgroup they are
// the only limit on tasks and, per process, on memory.
func (s *script) rlimits(p plan) {
	set := func(name string, which int, v int64) {
		v = min(v, hardLimit(which)) // a hard limit cannot be raised
		l := binary.LittleEndian.AppendUint64(nil, uint64(v))
		l = binary.LittleEndian.AppendUint64(l, uint64(v))
		s.do("limit "+name, unix.SYS_PRLIMIT64, num(0), num(which), s.bytes(l), num(0))
	}
	for _, l := range bounds.Rlimits {
		v := l.Value
		switch l.Number {
		case unix.RLIMIT_NOFILE:
			if !p.root && !p.container { // limit of init, which sends descriptors; its programs get fewer, see ownFiles
				v = 4096
			}
		case unix.RLIMIT_SIGPENDING:
			if n := finite(unix.RLIMIT_SIGPENDING); n > 0 && p.plain != nil {
				v = min(v, int64(n-ownSignals(n)))
			}
		}
		set(l.Name, l.Number, v)
	}
	if p.size.MaxTasks > 0 && p.plain == nil { // counted per user namespace; without one it counts the user's processes on the whole host
		set("nproc", unix.RLIMIT_NPROC, int64(p.size.MaxTasks)+1)
	}
	if n := UserTasks(); n > 0 && p.plain != nil {
		set("nproc", unix.RLIMIT_NPROC, int64(n-ownTasks(n)))
	}
	if p.size.DataBytes > 0 {
		set("data", unix.RLIMIT_DATA, p.size.DataBytes)
		// If a program unmaps a part of a huge page, the kernel keeps the whole page until memory is short. It shows only
		// the mapped part, so the watch could not count the rest.
		s.try("no large pages", unix.SYS_PRCTL, num(unix.PR_SET_THP_DISABLE), num(1), num(0), num(0), num(0))
	}
	if p.size.CPUSeconds > 0 {
		set("cpu", unix.RLIMIT_CPU, p.size.CPUSeconds)
	}
}

// ownFiles is the limit of open files of a program that runs as the server's own host
// user. The kernel counts the descriptors that a user has in flight through sockets,
// and refuses to send more than the sender's RLIMIT_NOFILE. Programs therefore get a
// lower limit than server, spawners and inits, so that these can always send.
func ownFiles() uint64 { return uint64(min(512, hardLimit(unix.RLIMIT_NOFILE)/2)) }

// hardLimit returns the server's own hard limit of a resource.
func hardLimit(which int) int64 {
	var l unix.Rlimit
	if unix.Getrlimit(which, &l) != nil || l.Max > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(l.Max)
}

// seccomp loads the filter. With notices it returns the register of the filter's listener.
func (s *script) seccomp(filter []byte, notices bool) (listener reg) {
	code := s.bytes(filter)
	prog := binary.LittleEndian.AppendUint64(nil, uint64(len(filter)/8))
	prog = append(prog, make([]byte, 8)...)
	head := s.bytes(prog)
	s.store("place of the filter", store64, at(head, 8), code)
	flags := uintptr(0)
	if notices {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	return s.keep("seccomp", unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(flags), head)
}

// HaveNotices reports whether a process that waits in a call for the listener of a filter can
// be killed. It cannot before Linux 5.19.
func HaveNotices() bool {
	flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), 0)
	return errno == unix.EFAULT // the kernel checks the flags before it reads the filter, which does not exist
}

// childrenSignals is CHILDREN in init.c.
const childrenSignals = 62

// childSignals opens the descriptor by which init learns of processes that have ended.
// It comes before the filter, which refuses signalfd4.
func (s *script) childSignals() {
	mask := s.bytes(binary.LittleEndian.AppendUint64(nil, 1<<(unix.SIGCHLD-1)))
	fd := s.keep("signals of children", unix.SYS_SIGNALFD4, num(uint64(math.MaxUint64)), mask, num(8), num(unix.SFD_CLOEXEC|unix.SFD_NONBLOCK))
	s.do("keep the signals of children", unix.SYS_DUP3, fd.arg(), num(childrenSignals), num(unix.O_CLOEXEC))
	s.free(fd)
}

// noticesPlace is NOTICES in init.c.
const noticesPlace = 63

// keepListener puts the listener of the filter that was loaded last where init expects it.
func (s *script) keepListener(listener reg) {
	s.do("keep the listener", unix.SYS_DUP3, listener.arg(), num(noticesPlace), num(unix.O_CLOEXEC))
	s.free(listener)
}

// filterBytes encodes a BPF program as the kernel reads it.
func filterBytes(ins []unix.SockFilter) []byte {
	var code []byte
	for _, i := range ins {
		code = binary.LittleEndian.AppendUint16(code, i.Code)
		code = binary.LittleEndian.AppendUint32(append(code, i.Jt, i.Jf), i.K)
	}
	return code
}
