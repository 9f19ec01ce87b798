package jail

import (
	"encoding/binary"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// InsideUID is the user and group that code runs as, in its own user namespace.
const InsideUID = 1000

// Size is what one sandbox may hold.
type Size struct {
	WorkBytes, WorkInodes int64 // of /mnt/data
	TempBytes             int64 // of /tmp; /dev/shm gets as many
	MaxTasks              int   // processes and threads, without our own init
	DataBytes             int64 // writable private memory of one process; 0: no limit. For hosts without a memory cgroup
	CPUSeconds            int64 // CPU time of one process; 0: no limit
}

// wall names one wall that the script builds, so that a test can leave it out.
type wall string

const (
	wallIDs      wall = "ids"
	wallCgroupNS wall = "cgroup namespace"
	wallCaps     wall = "capabilities"
	wallNNP      wall = "no_new_privs"
	wallLandlock wall = "landlock"
	wallSeccomp  wall = "seccomp"
	wallRlimits  wall = "rlimits"
	wallMounts   wall = "mounts"
	wallDump     wall = "dumpable"
)

// plan is what a sandbox's script is made from.
type plan struct {
	size     Size
	root     bool   // ids were given by a root server: groups can and must be dropped
	plain    *plain // tier L1: no namespaces; nil otherwise
	tasks    int    // so many descriptors of cgroup v1 "tasks" files are sent to init while it works
	abi      int    // of Landlock
	filter   []byte // seccomp program
	wantProc bool   // give the server a descriptor of the sandbox's /proc
	sockets  bool   // have init tell when the first socket of the network is made
	off      map[wall]bool
	without  uint64 // tests only: namespaces that a fork does not enter
}

// plain is where a sandbox without a mount namespace lives: directories of the
// host, and what it may read there.
type plain struct {
	uid                 int // to become; -1: stay
	work, temp, program string
	readable            []string
}

// probes tells where in a script's results each look from inside stands, and
// where in its descriptors the Landlock ruleset.
type probes struct{ landlock, vsock, setns, sockets, ruleset int }

// none is no descriptor: without a filter setns says so, and with that of a zygote,
// which stays on its forks, too.
var none = num(uint32(math.MaxUint32))

// Places in [Slot.Dirs], in the order in which a script gives them.
const (
	DirWork    = iota // /mnt/data
	DirProgram        // /run/program
	DirTemp           // /tmp
	DirShm            // /dev/shm, when /proc was wanted
	DirProc           // /proc of the sandbox, when it was wanted
)

// wallScript puts every wall around the process that runs it, in the only order
// that works: mounts and the cgroup while there are rights; then the rights go;
// then Landlock, which forbids mounts; seccomp last, because it forbids most of
// the above. The cgroup is being made by the server meanwhile: it is entered
// when it comes, before anything is put into the sandbox or started there.
func wallScript(p plan) (*script, probes) {
	s := &script{}
	s.firstOutOfMemory(p.plain != nil)
	s.dumpsNothing()
	if !p.off[wallCaps] && p.plain != nil { // a change from the host's root to another user takes the right to do it
		s.boundRights()
	}
	if !p.off[wallIDs] {
		s.ids(p)
	}
	s.do("setsid", unix.SYS_SETSID)
	s.do("umask", unix.SYS_UMASK, num(0o022))
	if p.plain == nil {
		s.places(p)
	} else {
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
	pr := probes{ruleset: -1}
	if !p.off[wallLandlock] {
		pr.ruleset = s.landlock(p)
	}
	program := programPlace
	if p.plain != nil {
		program = p.plain.program
	}
	pr.landlock = s.probe("look: write below "+program, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(program+"/.probe"), num(unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC), num(0o600))
	pr.sockets = -1
	if !p.off[wallSeccomp] {
		if p.sockets {
			pr.sockets = s.watchSockets()
		}
		s.seccomp(p.filter)
	}
	pr.vsock = s.probe("look: vsock", unix.SYS_SOCKET, num(unix.AF_VSOCK), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), num(0))
	pr.setns = s.probe("look: setns", unix.SYS_SETNS, none, num(0))
	return s, pr
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

const programPlace = "/run/program"

// places mounts what is this sandbox's own and opens it for the server.
func (s *script) places(p plan) {
	const nosuid = unix.MS_NOSUID | unix.MS_NODEV
	size := func(bytes, inodes int64) string {
		return ",size=" + strconv.FormatInt(max(bytes, 4096), 10) + ",nr_inodes=" + strconv.FormatInt(inodes+1, 10)
	}
	if !p.off[wallMounts] {
		s.mount("data", "/mnt/data", "tmpfs", nosuid, "mode=700"+size(p.size.WorkBytes, p.size.WorkInodes))
		s.mount("tmp", "/tmp", "tmpfs", nosuid, "mode=1777"+size(p.size.TempBytes, 20000))
		s.mount("shm", "/dev/shm", "tmpfs", nosuid|unix.MS_NOEXEC, "mode=1777"+size(p.size.TempBytes, 1000))
	}
	s.mount("run", "/run", "tmpfs", nosuid, "mode=755"+size(8<<20, 256))
	s.do("mkdir "+programPlace, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(programPlace), num(0o755))
	s.do("symlink "+backend.BridgeDir, unix.SYS_SYMLINKAT, s.str(programPlace+"/bridge"), num(unix.AT_FDCWD), s.str(backend.BridgeDir))
	s.mount("proc", "/proc", "proc", nosuid|unix.MS_NOEXEC, "hidepid=2")
	s.shares()
	s.do("sethostname", unix.SYS_SETHOSTNAME, s.str("sandbox"), num(len("sandbox")))
	s.enterCgroup(p.tasks)
	if !p.off[wallCgroupNS] { // shows the place that it is in as the root
		s.do("cgroup namespace", unix.SYS_UNSHARE, num(unix.CLONE_NEWCGROUP))
	}
	s.open("/mnt/data", programPlace, "/tmp")
	if p.wantProc {
		s.open("/dev/shm", "/proc")
	}
}

// shares bounds what the kernel counts for whoever started the server, over all
// its sandboxes together: one alone could leave the others and the host none.
func (s *script) shares() {
	for _, l := range [][2]string{{"max_inotify_instances", "8"}, {"max_inotify_watches", "4096"}} {
		s.setting("/proc/sys/user/"+l[0], l[1])
	}
}

// setting writes one of the kernel's.
func (s *script) setting(path, value string) {
	fd := s.keep("open "+path, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(path), num(unix.O_WRONLY|unix.O_CLOEXEC), num(0))
	s.do("set "+path, unix.SYS_WRITE, fd.arg(), s.str(value), num(len(value)))
	s.do("close "+path, unix.SYS_CLOSE, fd.arg())
	s.free(fd)
}

// firstOutOfMemory makes this process and its children the first that the kernel ends
// when the host's memory is used up. It stands before the change of ids, which removes the
// right to write the file. With may it may fail, for a read-only /proc.
func (s *script) firstOutOfMemory(may bool) {
	flags := uint32(0)
	if may {
		flags = mayFail
	}
	s.ownFile("/proc/self/oom_score_adj", "1000", flags)
}

// dumpsNothing keeps memory out of core dumps of this process and its children, also
// after execve. Since Linux 6.16 the host may take dumps by a socket, which no limit
// stops. Kernels that make no dumps have no such file.
func (s *script) dumpsNothing() { s.ownFile("/proc/self/coredump_filter", "0", mayFail) }

// ownFile writes a file that /proc has for this process.
func (s *script) ownFile(path, value string, flags uint32) {
	fd := s.reg()
	s.add("open "+path, unix.SYS_OPENAT, flags, fd, []arg{num(unix.AT_FDCWD), s.str(path), num(unix.O_WRONLY | unix.O_CLOEXEC), num(0)})
	s.add("set "+path, unix.SYS_WRITE, flags, 0, []arg{fd.arg(), s.str(value), num(len(value))})
	s.add("close "+path, unix.SYS_CLOSE, flags, 0, []arg{fd.arg()})
	s.free(fd)
}

// enterCgroup waits for n descriptors of "tasks" files and enters by each.
func (s *script) enterCgroup(n int) {
	if n == 0 {
		return
	}
	const head = 16 // of SCM_RIGHTS
	size := (head + 4*n + 7) &^ 7
	control := make([]byte, size)
	for i := head; i < size; i++ {
		control[i] = 0xff // no descriptor: when none come, entering fails
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
	zero := s.str("0") // "myself": spares the kernel's lock over all processes
	for i := range n {
		fd := s.reg()
		s.add("descriptor of a cgroup", load32, 0, fd, []arg{at(rights, uint64(head+4*i))})
		s.do("enter cgroup", unix.SYS_WRITE, fd.arg(), zero, num(1))
		s.do("close", unix.SYS_CLOSE, fd.arg())
		s.free(fd)
	}
}

// open opens directories and gives them to the server.
func (s *script) open(dirs ...string) {
	for _, d := range dirs {
		s.give(s.keep("open "+d, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(d), num(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC), num(0)))
	}
}

const (
	secureBits = 0x2f // noroot, no_setuid_fixup, keep_caps off; the first two locked
	lastCap    = 63
)

// boundRights empties the bounding set and locks the secure bits. Both need
// CAP_SETPCAP, so it comes before the effective set goes; whether it took is seen
// from the outside.
func (s *script) boundRights() {
	s.try("securebits", unix.SYS_PRCTL, num(unix.PR_SET_SECUREBITS), num(secureBits), num(0), num(0), num(0))
	for c := range lastCap + 1 {
		s.try("drop capability from the bounding set", unix.SYS_PRCTL, num(unix.PR_CAPBSET_DROP), num(c), num(0), num(0), num(0))
	}
}

// dropRights empties the other capability sets.
func (s *script) dropRights() {
	s.try("clear ambient set", unix.SYS_PRCTL, num(unix.PR_CAP_AMBIENT), num(unix.PR_CAP_AMBIENT_CLEAR_ALL), num(0), num(0), num(0))
	head := binary.LittleEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	head = binary.LittleEndian.AppendUint32(head, 0)
	s.do("drop capabilities", unix.SYS_CAPSET, s.bytes(head), s.bytes(make([]byte, 24)))
}

// rlimits are a second wall behind the cgroup; without a cgroup they are the
// first one for tasks and, per process, for memory.
func (s *script) rlimits(p plan) {
	set := func(name string, which int, v int64) {
		v = min(v, hardLimit(which)) // nobody may raise a limit that the server itself was given
		l := binary.LittleEndian.AppendUint64(nil, uint64(v))
		l = binary.LittleEndian.AppendUint64(l, uint64(v))
		s.do("limit "+name, unix.SYS_PRLIMIT64, num(0), num(which), s.bytes(l), num(0))
	}
	set("core", unix.RLIMIT_CORE, coreBytes)
	files := int64(4096) // of init, which has descriptors to send; its programs get fewer, see ownFiles
	if p.root {
		files = 1024
	}
	set("nofile", unix.RLIMIT_NOFILE, files)
	set("memlock", unix.RLIMIT_MEMLOCK, 1<<20)
	set("msgqueue", unix.RLIMIT_MSGQUEUE, 64<<10)
	set("sigpending", unix.RLIMIT_SIGPENDING, 1024)
	if p.size.MaxTasks > 0 && p.plain == nil { // counted per user namespace; without one it would count the whole machine's
		set("nproc", unix.RLIMIT_NPROC, int64(p.size.MaxTasks)+1)
	}
	if p.size.DataBytes > 0 {
		set("data", unix.RLIMIT_DATA, p.size.DataBytes)
	}
	if p.size.CPUSeconds > 0 {
		set("cpu", unix.RLIMIT_CPU, p.size.CPUSeconds)
	}
}

// coreBytes is the limit on core dumps. 1 is a word for the kernel: the program of the
// host that takes core dumps is not started. It would be with 0.
const coreBytes = 1

// ownFiles is how many descriptors a program may have whose host user is the
// server's own. Those on their way through sockets are counted by user and
// compared with the limit of whoever sends: server, spawners and the inits of
// other sandboxes have to be left more than a program can take.
func ownFiles() uint64 { return uint64(min(512, hardLimit(unix.RLIMIT_NOFILE)/2)) }

// hardLimit is the hard limit that the server runs under.
func hardLimit(which int) int64 {
	var l unix.Rlimit
	if unix.Getrlimit(which, &l) != nil || l.Max > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(l.Max)
}

func (s *script) seccomp(filter []byte) {
	code := s.bytes(filter)
	prog := binary.LittleEndian.AppendUint64(nil, uint64(len(filter)/8))
	prog = append(prog, make([]byte, 8)...)
	head := s.bytes(prog)
	s.store("place of the filter", store64, at(head, 8), code)
	s.do("seccomp", unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(0), head)
}

// socketWatch is WATCH in init.c.
const socketWatch = 63

// watchSockets has every call that makes a socket of the network wait until init has heard of
// it, by a filter of its own below the policy's: of two verdicts the kernel takes
// the harder one, so nothing is allowed by it. Where the kernel cannot (before
// 5.19), the probe says so, and nobody may conclude anything from init's silence.
func (s *script) watchSockets() (index int) {
	code := socketFilter()
	prog := binary.LittleEndian.AppendUint64(nil, uint64(len(code)/8))
	prog = append(prog, make([]byte, 8)...)
	head := s.bytes(prog)
	s.store("place of the socket filter", store64, at(head, 8), s.bytes(code))
	flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	index = s.probe("watch sockets", unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(flags), head)
	listener := s.results[index].arg()
	s.try("keep the listener", unix.SYS_DUP3, listener, num(socketWatch), num(unix.O_CLOEXEC))
	s.try("close", unix.SYS_CLOSE, listener)
	return index
}

// socketFilter is the program: socket and socketpair are told of, but for the
// Unix family, which leaves nothing when its last one is closed, and the one that
// init itself tries and that nobody gets.
func socketFilter() []byte {
	const number, family = 0, 16 // in struct seccomp_data, the family's low word
	ins := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_SOCKET},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: unix.SYS_SOCKETPAIR},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: family},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 3, K: unix.AF_VSOCK},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.AF_UNIX},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
	}
	return filterBytes(ins)
}

// filterBytes is a filter as the kernel reads it.
func filterBytes(ins []unix.SockFilter) []byte {
	var code []byte
	for _, i := range ins {
		code = binary.LittleEndian.AppendUint16(code, i.Code)
		code = binary.LittleEndian.AppendUint32(append(code, i.Jt, i.Jf), i.K)
	}
	return code
}
