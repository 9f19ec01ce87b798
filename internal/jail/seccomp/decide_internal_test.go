package seccomp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Call is a system call in the form that the kernel passes to a filter.
type Call struct {
	Audit  uint32 // architecture of the system call table; see Arch.AuditValue
	Number uint32
	Args   [6]uint64
}

// String returns "allow", "kill" or the error number.
func (v Verdict) String() string {
	switch {
	case v == Allow:
		return "allow"
	case v == KillProcess:
		return "kill"
	case v == ignore:
		return "ignore"
	case v == Notify:
		return "notify"
	case v&0xffff0000 == refusal:
		return "errno " + strconv.Itoa(int(v&0xffff))
	default:
		return fmt.Sprintf("verdict %#x", uint32(v))
	}
}

// Decide returns the policy's verdict on a call on an architecture. It is the reference for
// tests of the compiler. It shares only the lists of names with the compiler; the checks of
// arguments are written a second time, as plain conditions. It is slow. On an unknown
// architecture every call is killed.
func (p Policy) Decide(a Arch, c Call) Verdict {
	table, err := numbersOf(a)
	if err != nil || c.Audit != a.AuditValue() {
		return KillProcess
	}
	i := slices.IndexFunc(table, func(n number) bool { return n.nr == c.Number })
	if i < 0 {
		return Refuse(errENOSYS)
	}
	return p.decideName(a, table[i].name, c.Args)
}

func (p Policy) decideName(a Arch, name string, args [6]uint64) Verdict {
	v := p.variant
	if v.NoIPC && slices.Contains(strings.Fields(systemVNames), name) {
		return Refuse(errENOSYS)
	}
	if flags, opens := map[string]uint64{"open": args[1], "openat": args[2]}[name]; opens && flags%4 == 3 && (v.NoAttributes || v.Command) && slices.Contains(baselineOf(a), name) {
		return Refuse(errEINVAL)
	}
	if v.NoTruncate && empties(name, args) && slices.Contains(baselineOf(a), name) {
		return Refuse(errEPERM)
	}
	if verdict, ok := v.decideCommand(name, args); ok && (name == "clone" || name == "socket" || slices.Contains(baselineOf(a), name)) {
		return verdict
	}
	if verdict, ok := v.decideAttributes(name, args); ok && v.NoAttributes && slices.Contains(baselineOf(a), name) {
		return verdict
	}
	switch name {
	case "clone":
		return v.decideClone(args[0])
	case "pidfd_open", "getsockopt":
		return v.decidePidfd(name, int32(args[1]), int32(args[2]))
	case "ioctl":
		return decideIoctl(args[1])
	case "close_range":
		return unless(args[2]/2%2 == 1, Refuse(errEINVAL))
	case "madvise":
		advice := uint32(args[2])
		known := advice <= 4 || advice == 8 || advice == 10 || advice == 11 || advice >= 13 && advice <= 19 || advice >= 22 && advice <= 24
		if long := args[1] >= 256<<20; long && advice == 3 {
			return ignore
		} else if long && advice == 8 {
			known = false
		}
		return unless(!known, Refuse(errEINVAL))
	case "futex":
		return unless(args[1]&0x7f == 11 || args[1]&0x7f == 12, Refuse(errENOSYS))
	case "splice", "sendfile":
		return Refuse(errEINVAL)
	case "fallocate":
		return unless(uint32(args[1]) > 1, Refuse(errEOPNOTSUPP))
	case "lseek":
		return unless(uint32(args[2]) == 3 || uint32(args[2]) == 4, Refuse(errEINVAL))
	case "preadv2":
		return unless(args[5]>>3&1 == 1, Refuse(errEOPNOTSUPP))
	case "mincore":
		return unless(args[1] >= 1<<32, Refuse(errENOMEM))
	case "fsync", "fdatasync", "sync_file_range", "fadvise64":
		return unless(name != "fadvise64" || int32(args[3]) == 4, ignore)
	case "fcntl":
		if uint32(args[1]) == 4 && directly(a, "open", [6]uint64{0, args[2]}) {
			return Refuse(errEINVAL)
		}
		return decideFcntl(uint32(args[1]), uint32(args[2]))
	case "setsockopt":
		return decideOption(int32(args[1]), int32(args[2]))
	case "setrlimit":
		return v.decideLimit(uint32(args[0]), 1, 0, Allow) // setrlimit cannot read the old limit
	case "prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity":
		if name == "sched_setaffinity" && v.Watched {
			return Refuse(errEPERM)
		}
		if name == "sched_setaffinity" || name == "sched_setscheduler" && int32(args[1])&^(1<<30) == 5 {
			return v.ignored(int32(args[0]))
		}
		if name == "prlimit64" {
			return v.decideLimit(uint32(args[1]), args[2], uint32(args[3]), v.decideProcess(int32(args[0])))
		}
		return v.decideProcess(int32(args[0]))
	case "setpriority", "ioprio_set":
		return v.decideRank(name, int32(args[0]), int32(args[1]), int32(args[2]))
	case "seccomp", "prctl":
		return v.decideControl(name, int32(args[0]), int32(args[1]))
	case "setxattr", "lsetxattr", "fsetxattr":
		return unless(uint32(args[3]) >= 128, Refuse(errENOSPC))
	case "sendmmsg":
		return unless(uint32(args[2]) >= 32, Refuse(errENOSYS))
	case "recvmmsg":
		return unless(uint32(args[2]) >= 256, Refuse(errENOSYS))
	case "semget":
		if v.NoSharedMemory {
			return Refuse(errENOSYS)
		}
		return unless(uint32(args[1]) >= 1024, Refuse(errEINVAL))
	case "semop", "semtimedop":
		if v.NoSharedMemory {
			return Refuse(errENOSYS)
		}
		return unless(uint32(args[2]) >= 8, Refuse(errE2BIG))
	case "shmget", "memfd_create":
		return v.decideShared(name, args)
	case "socket":
		if v.NoSockets || v.NoIPv6 && int32(args[0]) == 10 {
			return Refuse(errEAFNOSUPPORT)
		}
		return v.noticed(decideSocket(int32(args[0]), int32(args[1]), int32(args[2])), int32(args[0]) != 1)
	case "poll", "ppoll", "select", "pselect6":
		if !slices.Contains(baselineOf(a), name) {
			return Refuse(errENOSYS)
		}
		count := args[1]
		if strings.HasSuffix(name, "select") || name == "pselect6" {
			count = args[0]
		}
		return v.noticed(Allow, uint32(count) >= 64)
	case "setpgid":
		return v.noticed(Allow, true)
	case "epoll_ctl":
		return v.noticed(Allow, int32(args[1]) == 1)
	case "socketpair":
		kind := args[1] & 15
		return unless(int32(args[0]) != 1 || v.NoSockets && kind != 1 && kind != 5, Refuse(errEAFNOSUPPORT))
	case "personality":
		return unless(uint32(args[0]) != 0 && uint32(args[0]) != 1<<32-1, Refuse(errEPERM))
	case "mmap":
		anonymous, shared, huge := args[3]&32 != 0, args[3]&1 != 0, args[3]>>18&1 == 1
		if growsDown := args[3]&256 != 0; huge || v.NoSharedMemory && (anonymous && shared || growsDown) {
			return Refuse(errENOMEM)
		}
		return Allow
	case "setns", "process_madvise":
		return unless(!v.AllowSetns, Refuse(errEPERM))
	}
	if directly(a, name, args) {
		return Refuse(errEINVAL)
	}
	if v.HostFiles && slices.Contains(baselineOf(a), name) {
		if verdict, ok := decideHostFile(name, args); ok {
			return verdict
		}
	}
	listed := func(names string) bool { return slices.Contains(strings.Fields(names), name) }
	switch {
	case v.NoSharedMemory && (listed(sharedMemoryNames) || listed(shadowStackName)), listed(absentNames):
		return Refuse(errENOSYS)
	case !v.AllowSetns && !v.SelfOnly && listed(landlockNames):
		return Refuse(errENOSYS)
	case listed(refusedNames):
		return Refuse(errEPERM)
	case slices.Contains(baselineOf(a), name):
		return Allow
	default:
		return Refuse(errENOSYS)
	}
}

// empties reports whether a call empties a file and opens it for writing neither before nor now.
func empties(name string, args [6]uint64) bool {
	flags, opens := map[string]uint64{"open": args[1], "openat": args[2]}[name]
	return name == "truncate" || opens && flags>>9%2 == 1 && flags%4 == 0
}

// directly reports whether a call opens a file so that reads bypass the host's memory.
func directly(a Arch, name string, args [6]uint64) bool {
	flags := map[string]uint64{"open": args[1], "openat": args[2]}[name]
	if a == ARM64 {
		return flags>>16%2 == 1
	}
	return flags>>14%2 == 1
}

// decideHostFile decides on calls that make files or change modes. It returns false for others.
func decideHostFile(name string, args [6]uint64) (v Verdict, ok bool) {
	var mode uint64
	made := true
	switch name {
	case "chmod", "fchmod", "mknod", "creat":
		mode = args[1]
	case "fchmodat", "fchmodat2", "mknodat":
		mode = args[2]
	case "open":
		mode, made = args[2], args[1]>>6%2 == 1 || args[1]>>22%2 == 1
	case "openat":
		mode, made = args[3], args[2]>>6%2 == 1 || args[2]>>22%2 == 1
	case "renameat2":
		return unless(args[4]>>2%2 == 1, Refuse(errEINVAL)), true
	default:
		return Allow, false
	}
	return unless(made && (mode>>10%2 == 1 || mode>>11%2 == 1), Refuse(errEPERM)), true
}

// decideAttributes decides on calls that change a file beside its contents, where Landlock is the only wall. It
// returns false for others.
func (v Variant) decideAttributes(name string, args [6]uint64) (verdict Verdict, ok bool) {
	path, times := args[1], args[2]
	switch name {
	case "chmod", "fchmod", "fchmodat", "fchmodat2":
		return ignore, v.NoModes
	case "chown", "lchown", "fchown", "fchownat":
		return Refuse(errEPERM), true
	case "ioctl":
		return Refuse(errENOTTY), uint32(args[1]) == 0x40086602 || uint32(args[1]) == 0xc0189436
	case "fcntl":
		return Refuse(errEINVAL), uint32(args[1]) == 0x40c
	case "utime", "utimes":
		path, times = args[0], args[1]
	case "utimensat", "futimesat":
	case "setxattrat":
		return 0, false
	default:
		return Refuse(errEOPNOTSUPP), strings.Contains(name, "xattr")
	}
	switch {
	case path == 0 && !v.NoModes:
		return Allow, true
	case path != 0 && times == 0:
		return Refuse(errEPERM), true
	}
	return ignore, true
}

// decideCommand decides on what differs for commands of the host. It returns false for others.
func (v Variant) decideCommand(name string, args [6]uint64) (verdict Verdict, ok bool) {
	switch name {
	case "execve", "execveat":
		return Refuse(errEACCES), v.NoExec
	case "fork", "vfork":
		return Refuse(errEAGAIN), v.NoProcesses
	case "clone":
		return Refuse(errEAGAIN), v.NoProcesses && args[0]>>16%2 == 0
	case "fsync", "fdatasync":
		return Allow, v.Command
	case "socket":
		family, kind, protocol := int32(args[0]), args[1]%16, int32(args[2])
		special := family == 16 && (kind == 2 || kind == 3) && (protocol == 0 || protocol == 4) ||
			family == 2 && kind == 2 && protocol == 1 || family == 10 && kind == 2 && protocol == 58 && !v.NoIPv6
		return Allow, v.Command && !v.NoSockets && special
	}
	return 0, false
}

// noticed returns the verdict on a call that is allowed and of which init is notified if noted is set.
func (v Variant) noticed(verdict Verdict, noted bool) Verdict {
	if v.Notices && noted && verdict == Allow {
		return 0x7fc00000
	}
	return verdict
}

// unless returns v if the call is refused, and otherwise Allow.
func unless(refused bool, v Verdict) Verdict {
	if refused {
		return v
	}
	return Allow
}

func (v Variant) decideClone(flags uint64) Verdict {
	for _, bit := range []uint{7, 13, 15, 17, 23, 25, 26, 27, 28, 29, 30} {
		if flags>>bit&1 == 1 {
			return Refuse(errEPERM)
		}
	}
	if files, thread := flags>>10&1 == 1, flags>>16&1 == 1; files != thread {
		return Refuse(errEPERM)
	}
	return unless(!v.AllowSetns && flags>>12&1 == 1, Refuse(errEINVAL))
}

func (v Variant) decidePidfd(name string, level, option int32) Verdict {
	switch {
	case name == "getsockopt" && (level == 6 && option == 35 || level == 0 && option == 41 || (level == 0 || level == 41) && option == 48):
		return Refuse(errENOPROTOOPT)
	case v.AllowSetns:
		return Allow
	case name == "pidfd_open":
		return Refuse(errENOSYS)
	default:
		return unless(level == 1 && option == 77, Refuse(errENOPROTOOPT))
	}
}

func decideFcntl(command, value uint32) Verdict {
	switch {
	case command == 4 && value>>13%2 == 1:
		return Refuse(errEINVAL)
	case command == 8 && int32(value) < 0, command == 15:
		return Refuse(errEINVAL)
	case command == 1033 && (value>>1%2 == 1 || value>>5%2 == 1):
		return Refuse(errEPERM)
	case command <= 11, 15 <= command && command <= 17:
		return Allow
	case command == 0x400, command == 0x402, command == 0x407:
		return Refuse(errEPERM)
	case command >= 0x401 && command <= 0x40e && command != 0x405:
		return Allow
	default:
		return Refuse(errEINVAL)
	}
}

func (v Variant) decideRank(name string, which, who, value int32) Verdict {
	if name == "setpriority" && which == 2 || name == "ioprio_set" && which == 3 {
		return Refuse(errEPERM)
	}
	if name == "setpriority" && value >= 0 || name == "ioprio_set" && uint16(value)>>13 == 3 {
		return v.ignored(who)
	}
	return v.decideProcess(who)
}

// ignored is decideProcess for a change that succeeds and changes nothing.
func (v Variant) ignored(pid int32) Verdict {
	if v.decideProcess(pid) == Allow {
		return ignore
	}
	return Refuse(errEPERM)
}

func (v Variant) decideControl(name string, first, second int32) Verdict {
	filter := name == "seccomp" && first == 1 || name == "prctl" && first == 22 && second == 2
	later := uint32(first) > 78 && first != 0x53564d41 && first != 0x59616d61 && first != 0x41555856
	if filter && !v.AllowSetns || name == "prctl" && (first == 35 || first == 36 || first == 62 || first == 67 || first == 78 || later) {
		return Refuse(errEINVAL)
	}
	if v.Watched && name == "prctl" && (first == 4 && second == 0 || first == 41 && !v.AllowSetns) {
		return Refuse(errEPERM)
	}
	if v.Watched && !v.AllowSetns && name == "prctl" && first == 4 {
		return ignore
	}
	return v.noticed(Allow, name == "prctl" && first == 1 && second != 0 && second != 9)
}

func (v Variant) decideShared(name string, args [6]uint64) Verdict {
	switch {
	case v.NoSharedMemory:
		return Refuse(errENOSYS)
	case name == "memfd_create" && uint32(args[1])<<6>>11 != 0: // bits 5 to 25
		return Refuse(errEINVAL)
	case name == "shmget" && args[2]>>11%2 == 1, name == "memfd_create" && args[1]>>2%2 == 1:
		return Refuse(errENOMEM)
	default:
		return Allow
	}
}

// decideLimit decides on a call that changes or reads resource limits: by the number of the
// limit, and by the pointers to its new and old value.
func (v Variant) decideLimit(limit uint32, value uint64, old uint32, otherwise Verdict) Verdict {
	switch {
	case limit != 4 || value == 0 || v.AllowSetns:
		return otherwise
	case uint32(value) != 0 && old != 0:
		return Refuse(errEPERM)
	default:
		return ignore
	}
}

// decideProcess decides on a call that changes the process with this id. 0 means the
// caller.
func (v Variant) decideProcess(pid int32) Verdict {
	if v.SelfOnly && pid != 0 || pid == 1 {
		return Refuse(errEPERM)
	}
	return Allow
}

func decideOption(level, option int32) Verdict {
	between := func(from, to int32) bool { return from <= option && option <= to }
	known := false
	switch level {
	case 1:
		if between(6, 8) {
			return ignore
		}
		known = option == 2 || between(5, 16) || option == 18 || between(20, 21) || option == 25 || option == 40 || option == 42 || between(66, 67)
	case 6:
		known = between(1, 10) || between(12, 13) || between(16, 18) || option == 23 || option == 25 || option == 30 || option == 36
	case 41:
		if option == 25 {
			return ignore
		}
		known = between(16, 19) || between(23, 24) || option == 26 || option == 29 || between(49, 52) || option == 60 || option == 62 ||
			between(66, 67) || option == 70 || option == 72 || option == 74 || between(76, 78)
	case 0:
		if option == 11 {
			return ignore
		}
		known = between(1, 2) || option == 8 || option == 10 || between(12, 13) || option == 15 || option == 20 || option == 24 ||
			between(32, 34) || between(49, 51)
	case 17:
		known = between(101, 103)
	}
	if known {
		return Allow
	}
	return Refuse(errENOPROTOOPT)
}

func decideIoctl(arg uint64) Verdict {
	command := uint32(arg)
	between := func(from, to uint32) bool { return from <= command && command <= to }
	listed := command == 2 || command == 0x5421 || command == 0x5422 || command == 0x5429 || command == 0x541b || command == 0x5460 ||
		between(0x5401, 0x540b) || between(0x540f, 0x5411) || between(0x5413, 0x5414) || between(0x5450, 0x5451) || between(0x8903, 0x8905) ||
		slices.Contains([]uint32{0x8910, 0x8913, 0x891d, 0x8921, 0x8927, 0x8933, 0x8942}, command)
	switch command >> 16 { // direction and size of the argument
	case 0x8004:
		listed = command == 0x80045200
	case 0x4004:
		listed = command == 0x40049409
	case 0x802c, 0x402c:
		listed = command == 0x802c542a || between(0x402c542b, 0x402c542d)
	case 0x8008, 0x4008:
		listed = command == 0x80086601 || command == 0x80087601 || command == 0x40086602 || command == 0x40082104
	case 0x801c, 0xc018, 0x4020, 0xc050:
		listed = slices.Contains([]uint32{0x801c581f, 0xc0189436, 0xc0182101, 0x4020940d, 0xc0502100}, command)
	}
	signExtended := arg == uint64(int64(int32(command)))
	switch {
	case command == 0x540E, command == 0x5412, command == 0x541C, command == 0x541D, !signExtended && arg != uint64(command):
		return Refuse(errEPERM)
	case listed:
		return Allow
	case arg == 0x5452:
		return ignore
	default:
		return Refuse(errENOTTY)
	}
}

func decideSocket(family, kind, protocol int32) Verdict {
	switch family {
	case 1:
		return Allow
	case 2, 10:
		switch k := uint32(kind) % 16; {
		case k == 3, k == 10:
			return Refuse(errEPERM)
		case k == 1 && (protocol == 0 || protocol == 6), k == 2 && (protocol == 0 || protocol == 17):
			return Allow
		}
	}
	return Refuse(errEAFNOSUPPORT)
}
