package seccomp_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// TestAttributesOfHostFiles: where Landlock is the only wall around the host's files, no call changes what it does
// not govern, by whatever pointers and flags. Programs with a user of their own may change modes and, by a
// descriptor, times; the kernel lets them do so to files of that user.
func TestAttributesOfHostFiles(t *testing.T) {
	const high, pointer = 1 << 32, 1 << 40
	none, wide, user := seccomp.Variant{}, seccomp.Variant{NoAttributes: true, SelfOnly: true}, seccomp.Variant{NoAttributes: true, NoModes: true, SelfOnly: true}
	ignored, refused, absent := seccomp.Verdict(0x50000), seccomp.Refuse(1), seccomp.Refuse(95)
	var cases []verdict
	for _, name := range []string{"fchmod", "fchmodat", "fchmodat2"} {
		for _, args := range [][6]uint64{{}, {3, pointer, 0o755}, {3, 0o6755}, {3, pointer, 0o6755, 0x1000}} {
			cases = append(cases, verdict{user, name, args, ignored}, verdict{wide, name, args, seccomp.Allow}, verdict{none, name, args, seccomp.Allow})
		}
	}
	for _, v := range []seccomp.Variant{user, wide} {
		for _, name := range []string{"fchown", "fchownat"} {
			cases = append(cases, verdict{v, name, [6]uint64{3, pointer, 1000, 1000}, refused}, verdict{v, name, [6]uint64{3, 0xffffffff, 0xffffffff}, refused})
		}
		for _, name := range []string{"setxattr", "fsetxattr", "getxattr", "fremovexattr", "removexattrat"} {
			cases = append(cases, verdict{v, name, [6]uint64{3, pointer, pointer, 1}, absent}, verdict{v, name, [6]uint64{3, pointer, pointer, 65536}, absent})
		}
		cases = append(cases,
			verdict{v, "utimensat", [6]uint64{3, pointer, pointer}, ignored},
			verdict{v, "utimensat", [6]uint64{3, high, high, 0x1000}, ignored},
			verdict{v, "utimensat", [6]uint64{3, pointer, 0}, refused},
			verdict{v, "ioctl", [6]uint64{3, 0x40086602}, seccomp.Refuse(25)},               // FS_IOC_SETFLAGS
			verdict{v, "ioctl", [6]uint64{3, 0xc0189436}, seccomp.Refuse(25)},               // FIDEDUPERANGE
			verdict{v, "ioctl", [6]uint64{3, 0xffffffffc0189436}, seccomp.Refuse(25)},       // as an int
			verdict{v, "ioctl", [6]uint64{3, 0x80086601}, seccomp.Allow},                    // FS_IOC_GETFLAGS
			verdict{v, "fcntl", [6]uint64{3, 1036}, seccomp.Refuse(22)},                     // F_SET_RW_HINT
			verdict{v, "setxattrat", [6]uint64{3, pointer, 0, pointer}, seccomp.Refuse(38)}, // as everywhere
		)
	}
	checkVerdicts(t, append(cases,
		verdict{user, "utimensat", [6]uint64{3, 0, pointer}, ignored},
		verdict{user, "utimensat", [6]uint64{3}, ignored},
		verdict{wide, "utimensat", [6]uint64{3, 0, pointer}, seccomp.Allow},
		verdict{none, "utimensat", [6]uint64{3, pointer, pointer}, seccomp.Allow},
		verdict{none, "fchownat", [6]uint64{3, pointer}, seccomp.Allow},
		verdict{none, "getxattr", [6]uint64{pointer}, seccomp.Allow},
	))
}

// TestNoFileIsEmptied: before ABI 3, Landlock does not keep a program from emptying a file without opening it for writing.
func TestNoFileIsEmptied(t *testing.T) {
	old, create := seccomp.Variant{NoAttributes: true, NoTruncate: true}, uint64(0o100)
	refused := seccomp.Refuse(1)
	checkVerdicts(t, []verdict{
		{old, "truncate", [6]uint64{1 << 40, 0}, refused},
		{old, "openat", [6]uint64{3, 1 << 40, 0o1000}, refused},
		{old, "openat", [6]uint64{3, 1 << 40, 0o1000 | 3}, seccomp.Refuse(22)}, // neither for reading nor for writing
		{old, "openat", [6]uint64{3, 1 << 40, 0o1000 | create | 1<<32}, refused},
		{old, "openat", [6]uint64{3, 1 << 40, 0o1000 | create | 1}, seccomp.Allow}, // Landlock governs it
		{old, "openat", [6]uint64{3, 1 << 40, 0o1000 | create | 2}, seccomp.Allow},
		{old, "openat", [6]uint64{3, 1 << 40, create}, seccomp.Allow},
		{seccomp.Variant{NoAttributes: true}, "openat", [6]uint64{3, 1 << 40, 0o1000}, seccomp.Allow},
		{seccomp.Variant{NoAttributes: true}, "truncate", [6]uint64{1 << 40, 0}, seccomp.Allow},
	})
}

// TestNoFileIsOpenedForNothing: Landlock lets a program open every file neither to read nor to write it.
func TestNoFileIsOpenedForNothing(t *testing.T) {
	var cases []verdict
	for _, v := range []seccomp.Variant{{NoAttributes: true, SelfOnly: true}, {Command: true, SelfOnly: true}} {
		for _, flags := range []uint64{3, 3 | 1<<32, 0o100 | 3, 0o2000003} {
			cases = append(cases, verdict{v, "openat", [6]uint64{3, 1 << 40, flags}, seccomp.Refuse(22)})
		}
		for _, flags := range []uint64{0, 1, 2, 0o100 | 2, 0o10000000} {
			cases = append(cases, verdict{v, "openat", [6]uint64{3, 1 << 40, flags}, seccomp.Allow})
		}
	}
	checkVerdicts(t, append(cases, verdict{seccomp.Variant{}, "openat", [6]uint64{3, 1 << 40, 3}, seccomp.Allow}))
}
