package relay

import (
	"encoding/binary"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// LANDLOCK_ACCESS_FS_*.
const (
	landExecute   = 1 << 0
	landWriteFile = 1 << 1
	landReadFile  = 1 << 2
	landReadDir   = 1 << 3
	landRefer     = 1 << 13 // version 2
	landTruncate  = 1 << 14 // version 3
	landIoctlDev  = 1 << 15 // version 5

	landRead   = landExecute | landReadFile | landReadDir
	landDevice = landReadFile | landWriteFile | landTruncate | landIoctlDev
	landQuiet  = 1 | 4 // version 7: no audit records
)

// landRights returns every right on files that a version of Landlock knows.
func landRights(version int) uint64 {
	all := uint64(1<<13 - 1)
	if version >= 2 {
		all |= landRefer
	}
	if version >= 3 {
		all |= landTruncate
	}
	if version >= 5 {
		all |= landIoctlDev
	}
	return all
}

// landlock adds the calls by which a program can read and execute every file, and write to its own
// directories and to a few devices. A rule for a path that is not there has no effect.
//
// Preconditions: the process has no_new_privs, or CAP_SYS_ADMIN (landlock(7)).
func (s *Sandbox) landlock(l *list) {
	version := s.standing.landlock
	all := landRights(version)
	rules := l.do("landlock_create_ruleset", l.bytes(binary.LittleEndian.AppendUint64(nil, all)), num(8), num(0))
	allow := func(path string, rights uint64) {
		// struct landlock_path_beneath_attr: the rights, and the descriptor in 32 bits
		rule := l.bytes(append(binary.LittleEndian.AppendUint64(nil, rights&all), make([]byte, 8)...))
		fd := l.try("openat", num(atFDCWD), l.str(path), num(openPath|openCloexec), num(0))
		l.store(arg{tagBytes, rule.v + 8}, result(fd))
		l.try("landlock_add_rule", result(rules), num(1), rule, num(0))
	}
	allow("/", landRead)
	allow(backend.WorkDir, all)
	allow(backend.TempDir, all)
	allow("/dev/shm", all&^landExecute)
	for _, device := range []string{"null", "full", "random", "urandom"} {
		allow("/dev/"+device, landDevice)
	}
	allow("/dev/zero", landReadFile|landIoctlDev)
	flags := 0
	if version >= 7 {
		flags = landQuiet
	}
	l.do("landlock_restrict_self", result(rules), num(flags))
}
