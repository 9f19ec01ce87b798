package seccomp

import "strings"

// Calls that change what belongs to a file beside its contents, by a path or by a descriptor that was opened for
// reading. Landlock governs none of them, up to its ABI 7. Where Landlock is the only wall around the host's files, a
// program could make the keys of the host's user readable for others, or a file of that user a set-user-ID
// program.
const (
	modeNames      = `chmod fchmod fchmodat fchmodat2`
	ownerNames     = `chown lchown fchown fchownat`
	attributeCalls = `setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr removexattrat
		getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat`
)

// More of such calls: file flags (FS_IOC_SETFLAGS), FIDEDUPERANGE, which the owner of a file may use without
// opening it for writing (linux/fs.h), and a hint that stays with the file (F_SET_RW_HINT, linux/fcntl.h).
const (
	ioctlSetFlags = 0x40086602
	ioctlDedupe   = 0xc0189436
	fcntlSetHint  = 1036
)

// timePlaces are the arguments with the path and the times of calls that set the times of a file.
var timePlaces = map[string]struct{ path, times uint8 }{
	"utimensat": {1, 2}, "futimesat": {1, 2}, "utime": {0, 1}, "utimes": {0, 1},
}

// wideRules are the rules of Variant.NoAttributes and Variant.NoModes.
//
// A filter cannot tell which file a path or a descriptor names. Modes and times are set with success and without
// effect, because programs that copy or unpack files stop otherwise. Only a call that sets the times to now by a path is
// refused: Python's Path.touch would take success for the proof that the file is there. Owners are refused with
// EPERM, as for every user without rights. Extended attributes, also access lists, fail as in a file system that
// has none, and cannot be read either.
//
// A descriptor leads to files that Landlock lets the program open. Unless a file belongs to the program's user or
// everybody may write to it, the kernel refuses to set its times.
func (p Policy) wideRules(rules map[string]rule, a Arch) {
	set := func(names string, v Verdict) {
		for name := range strings.FieldsSeq(names) {
			rules[name] = rule{otherwise: v}
		}
	}
	set(ownerNames, Refuse(errEPERM))
	set(attributeCalls, Refuse(errEOPNOTSUPP))
	byDescriptor := Allow
	if p.variant.NoModes {
		set(modeNames, ignore)
		byDescriptor = ignore
	}
	for name, at := range timePlaces {
		if name != "utimensat" && a != AMD64 { // the others have only that call
			continue
		}
		rules[name] = rule{[]clause{
			{[]test{equal(at.path, 0), highWord(at.path, 0)}, byDescriptor},
			{[]test{equal(at.times, 0), highWord(at.times, 0)}, Refuse(errEPERM)},
		}, ignore}
	}
	first := func(name string, c clause) {
		r := rules[name]
		rules[name] = rule{append([]clause{c}, r.clauses...), r.otherwise}
	}
	first("ioctl", clause{[]test{oneOf(1, []uint32{ioctlSetFlags, ioctlDedupe})}, Refuse(errENOTTY)})
	first("fcntl", clause{[]test{equal(1, fcntlSetHint)}, Refuse(errEINVAL)})
	neitherRules(rules)
}

// openTruncate is O_TRUNC, and openFor masks the access mode (O_ACCMODE, fcntl.h). openNothing is the access mode for
// neither reading nor writing.
const (
	openTruncate = 0o1000
	openFor      = 3
	openNothing  = 3
)

// truncateRules are the rules of Variant.NoTruncate. Landlock governs opening a file for writing. Before ABI 3 it does
// not govern emptying a file that is not opened for writing.
func truncateRules(rules map[string]rule) {
	rules["truncate"] = rule{otherwise: Refuse(errEPERM)}
	for name, flags := range map[string]uint8{"open": 1, "openat": 2} {
		r, there := rules[name]
		if !there {
			continue
		}
		emptied := clause{[]test{masked(flags, openTruncate|openFor, openTruncate)}, Refuse(errEPERM)}
		rules[name] = rule{append([]clause{emptied}, r.clauses...), r.otherwise}
	}
}
