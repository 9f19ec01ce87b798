package seccomp

import (
	"slices"
	"strings"
)

// Call is a system call as the kernel shows it to a filter.
type Call struct {
	Audit  uint32 // the table it came through; see Arch.AuditValue
	Number uint32
	Args   [6]uint64
}

// Decide says what the policy does with a call on an architecture. It is the
// reference for the compiler and shares nothing with it but the lists of names:
// the checks of arguments are written here a second time, as plain conditions.
// It is slow. On an unknown architecture every call is a kill.
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
	switch name {
	case "clone":
		return decideClone(args[0])
	case "ioctl":
		return decideIoctl(args[1])
	case "fcntl":
		if command := uint32(args[1]); command == 0x400 || command == 0x402 {
			return Refuse(errEPERM)
		}
		return Allow
	case "socket":
		if v.NoSockets {
			return Refuse(errEAFNOSUPPORT)
		}
		return decideSocket(int32(args[0]), int32(args[1]), int32(args[2]))
	case "socketpair":
		if int32(args[0]) != 1 {
			return Refuse(errEAFNOSUPPORT)
		}
		return Allow
	case "personality":
		if persona := uint32(args[0]); persona == 0 || persona == 1<<32-1 {
			return Allow
		}
		return Refuse(errEPERM)
	case "mmap":
		if anonymous, shared := args[3]&32 != 0, args[3]&1 != 0; v.NoSharedMemory && anonymous && shared {
			return Refuse(errENOMEM)
		}
		return Allow
	case "sched_setaffinity":
		if v.NoSetAffinity {
			return Refuse(errEPERM)
		}
		return Allow
	case "setns":
		if v.AllowSetns {
			return Allow
		}
		return Refuse(errEPERM)
	}
	listed := func(names string) bool { return slices.Contains(strings.Fields(names), name) }
	switch {
	case v.NoSharedMemory && listed(sharedMemoryNames), listed(absentNames):
		return Refuse(errENOSYS)
	case listed(refusedNames):
		return Refuse(errEPERM)
	case slices.Contains(baselineOf(a), name):
		return Allow
	default:
		return Refuse(errENOSYS)
	}
}

func decideClone(flags uint64) Verdict {
	for _, bit := range []uint{7, 13, 15, 17, 23, 25, 26, 27, 28, 29, 30} {
		if flags>>bit&1 == 1 {
			return Refuse(errEPERM)
		}
	}
	return Allow
}

func decideIoctl(arg uint64) Verdict {
	signExtended := arg == uint64(int64(int32(uint32(arg))))
	plain := arg == uint64(uint32(arg))
	if !signExtended && !plain {
		return Refuse(errEPERM)
	}
	switch uint32(arg) {
	case 0x540E, 0x5412, 0x541C, 0x541D:
		return Refuse(errEPERM)
	default:
		return Allow
	}
}

func decideSocket(family, kind, protocol int32) Verdict {
	switch family {
	case 1:
		return Allow
	case 16:
		if protocol == 0 {
			return Allow
		}
	case 2, 10:
		if k := uint32(kind) % 16; k == 3 || k == 10 {
			return Refuse(errEPERM)
		}
		if protocol == 0 || protocol == 6 || protocol == 17 {
			return Allow
		}
	}
	return Refuse(errEAFNOSUPPORT)
}
