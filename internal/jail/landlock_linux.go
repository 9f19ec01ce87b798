package jail

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// LANDLOCK_ACCESS_FS_* and LANDLOCK_SCOPE_*.
const (
	llExecute   = 1 << 0
	llWriteFile = 1 << 1
	llReadFile  = 1 << 2
	llReadDir   = 1 << 3
	llMakeChar  = 1 << 6
	llMakeBlock = 1 << 11
	llRefer     = 1 << 13 // ABI 2
	llTruncate  = 1 << 14 // ABI 3
	llIoctlDev  = 1 << 15 // ABI 5

	llRead         = llExecute | llReadFile | llReadDir
	llScopeSockets = 1 // abstract unix sockets, ABI 6
	llScopeSignals = 2 // ABI 6

	llQuietSelf   = 1 // ABI 7: no audit records of what the domain refuses before an execve
	llQuietNested = 4 // ABI 7: no audit records of domains that programs make inside it
)

// quiet returns the flags by which Landlock writes no audit records, or 0 if the kernel
// writes none. If the host keeps an audit log, a program could fill it with refused calls.
func quiet(abi int) uint32 {
	if abi < 7 {
		return 0
	}
	return llQuietSelf | llQuietNested
}

// landlockABI returns the kernel's Landlock ABI version; 0: no Landlock.
func landlockABI() int {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */)
	if e != 0 {
		return 0
	}
	return int(v)
}

// GovernsTruncate reports whether Landlock keeps programs from emptying files that they cannot open for writing.
func GovernsTruncate() bool { return landlockABI() >= 3 }

// handledFS returns every file right that an ABI version knows.
func handledFS(abi int) uint64 {
	fs := uint64(1<<13 - 1)
	if abi >= 2 {
		fs |= llRefer
	}
	if abi >= 3 {
		fs |= llTruncate
	}
	if abi >= 5 {
		fs |= llIoctlDev
	}
	return fs
}

// commonDescriptors is COMMON in init.c.
const commonDescriptors = 80

// openCommon opens places of the template that each sandbox's Landlock rules name, where a sandbox's script
// expects them: the root and the devices.
func (s *script) openCommon() {
	open := func(path string) {
		fd := s.keep("open "+path, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(path), num(unix.O_PATH|unix.O_CLOEXEC), num(0))
		s.do("keep "+path, unix.SYS_DUP3, fd.arg(), num(common(path)), num(unix.O_CLOEXEC))
		s.free(fd)
	}
	open("/")
	for _, d := range devices {
		open("/dev/" + d)
	}
}

// common returns the descriptor of a place that openCommon opens; -1: it is another.
func common(path string) int {
	if path == "/" {
		return commonDescriptors
	}
	device, ok := strings.CutPrefix(path, "/dev/")
	if i := slices.Index(devices, device); ok && i >= 0 {
		return commonDescriptors + 1 + i
	}
	return -1
}

// landlock allows reading and executing all files that are visible, writing in the
// sandbox's own directories, and nothing else. It returns the index of the ruleset
// among the returned descriptors; -1: it is not returned.
//
// With a pid namespace the Landlock domain does not scope signals. Init has to signal
// zygote forks, which are in Landlock domains of their own.
func (s *script) landlock(p plan) (ruleset int) {
	fs := handledFS(p.abi)
	attr := binary.LittleEndian.AppendUint64(nil, fs)
	attr = binary.LittleEndian.AppendUint64(attr, 0) // network: the network namespace is the wall
	size := 8
	if p.abi >= 4 {
		size = 16
	}
	if p.abi >= 6 {
		scope := uint64(llScopeSockets)
		if p.plain != nil {
			scope |= llScopeSignals
		}
		attr, size = binary.LittleEndian.AppendUint64(attr, scope), 24
	}
	rules := s.keep("landlock ruleset", unix.SYS_LANDLOCK_CREATE_RULESET, s.bytes(attr), num(size), num(0))
	fd := s.reg() // of a directory or device; init closes all of them at once
	rule := func(rights uint64, fd int) arg {
		return s.bytes(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, rights&fs), uint32(fd)))
	}
	allow := func(path string, rights uint64, must bool) {
		if open := common(path); open >= 0 && p.plain == nil && !p.container {
			s.do("allow "+path, unix.SYS_LANDLOCK_ADD_RULE, rules.arg(), num(1), rule(rights, open), num(0))
			return
		}
		place := rule(rights, 0)
		flags := uint32(0)
		if !must {
			flags = mayFail
		}
		call, args := uint32(unix.SYS_OPENAT), []arg{num(unix.AT_FDCWD), s.str(path), num(unix.O_PATH | unix.O_CLOEXEC), num(0)}
		if p.plain != nil && path == p.shared.Host {
			call, args = unix.SYS_OPENAT2, s.openPlain(path)
		}
		s.add("open "+path, call, flags, fd, args)
		s.store("rule for "+path, store32, at(place, 8), fd.arg())
		s.add("allow "+path, unix.SYS_LANDLOCK_ADD_RULE, flags, 0, []arg{rules.arg(), num(1), place, num(0)})
		if p.plain != nil { // its places may be so many that their descriptors reach those that init keeps
			s.add("close "+path, unix.SYS_CLOSE, flags, 0, []arg{fd.arg()})
		}
	}
	const device = llReadFile | llWriteFile | llTruncate | llIoctlDev
	if p.plain == nil {
		allow("/", llRead, true)
		allow("/mnt/data", fs, true)
		allow("/tmp", fs, true)
		allow("/dev/shm", fs&^llExecute, true)
		if p.shared.Writable && !p.apart {
			allow(p.shared.Inside, fs&^notShared, true)
		}
		if p.terminal {
			allow(ptysPlace, llReadDir|device, true)
		}
	} else {
		for _, d := range p.plain.readable {
			rights := uint64(llRead)
			if st, err := os.Stat(d); err == nil && !st.IsDir() {
				rights &^= llReadDir
			}
			allow(d, rights, false)
		}
		allow(p.plain.program, llRead, true)
		allow(p.plain.work, fs, true)
		allow(p.plain.temp, fs, true)
	}
	for _, d := range devices {
		rights := uint64(device)
		if d == "zero" { // a shared, writable mapping of /dev/zero would be memory that is charged to no process and no file system
			rights &^= llWriteFile | llTruncate
		}
		allow("/dev/"+d, rights, true)
	}
	s.do("landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, rules.arg(), num(quiet(p.abi)))
	if p.plain == nil { // init closes the ruleset once it has returned it
		return s.give(rules)
	}
	return -1
}
