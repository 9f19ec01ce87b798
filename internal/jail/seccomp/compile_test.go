package seccomp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

var arches = []seccomp.Arch{seccomp.AMD64, seccomp.ARM64}

// machine runs compiled filters, in the order in which they are loaded, on an interpreter that is not ours. Of
// several verdicts it returns the strictest, as the kernel does; of several errors that of the last filter.
type machine struct{ vms []*bpf.VM }

func newMachine(t testing.TB, prog []byte) machine {
	t.Helper()
	var ins []bpf.Instruction
	for ; len(prog) > 0; prog = prog[seccomp.InstructionSize:] {
		raw := bpf.RawInstruction{
			Op: binary.LittleEndian.Uint16(prog), Jt: prog[2], Jf: prog[3], K: binary.LittleEndian.Uint32(prog[4:]),
		}
		in := raw.Disassemble()
		if _, unknown := in.(bpf.RawInstruction); unknown {
			t.Fatalf("instruction %+v: got none that bpf knows, want one", raw)
		}
		ins = append(ins, in)
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatalf("the filter as a program: got %v, want nil", err)
	}
	return machine{[]*bpf.VM{vm}}
}

// run lays the call out as struct seccomp_data of a little-endian machine, each
// 32-bit word turned round, because the interpreter loads in network order.
func (m machine) run(t testing.TB, c seccomp.Call) seccomp.Verdict {
	t.Helper()
	var b [64]byte
	be := binary.BigEndian
	be.PutUint32(b[0:], c.Number)
	be.PutUint32(b[4:], c.Audit)
	for i, a := range c.Args {
		be.PutUint32(b[16+8*i:], uint32(a))
		be.PutUint32(b[20+8*i:], uint32(a>>32))
	}
	strictest := seccomp.Allow
	for _, vm := range slices.Backward(m.vms) {
		n, err := vm.Run(b[:])
		if err != nil {
			t.Fatalf("run %+v: got %v, want a verdict", c, err)
		}
		if v := seccomp.Verdict(uint32(n)); int32(v)>>16 < int32(strictest)>>16 {
			strictest = v
		}
	}
	return strictest
}

// edges are values at which a check of arguments may go wrong: what the rules
// name, its neighbors, single bits, signs, and each with a high word.
func edges() []uint64 {
	low := []uint64{
		0, 1, 2, 3, 6, 7, 9, 10, 11, 13, 15, 16, 17, 18, 21, 26, 31, 32, 33, 34, 35, 38, 40, 41, 58, 132, 136, 262,
		0x540d, 0x540e, 0x5411, 0x5412, 0x5413, 0x541c, 0x541d, 0x541e, 0x80045200, 0x80045430, 0x80005412, 0x8914,
		0x3d0f00, 0x1200011, 0x4111, 0x80003, 0x80803, 0x80002, 0x80802, 0x800 | 10, 0xfffffff3, 0xfffffffa,
		0x7fffffff, 0xfffffffe, 0xffffffff,
	}
	for b := range 32 {
		low = append(low, 1<<b)
	}
	var all []uint64
	for _, l := range low {
		all = append(all, l, l|1<<32, l|0xffffffff<<32)
	}
	return append(all, 1<<63, 1<<62|0x5412)
}

// numbers is every number of today and tomorrow, the x32 table, and the ends.
func numbers() []uint32 {
	var all []uint32
	for nr := range uint32(600) {
		all = append(all, nr, nr|0x40000000, nr|0x80000000)
	}
	return append(all, 0xffffffff, 0x7fffffff, 0x3fffffff)
}

func variants() []seccomp.Variant {
	var all []seccomp.Variant
	for bits := range 32 {
		all = append(all, variantOf(uint8(bits)))
	}
	return append(all, seccomp.Variant{NoIPv6: true}, seccomp.Variant{Notices: true}, seccomp.Variant{Notices: true, NoIPv6: true}, seccomp.Variant{Notices: true, NoSockets: true}, seccomp.Variant{HostFiles: true}, seccomp.Variant{Scratch: true}, seccomp.Variant{HostFiles: true, Notices: true, NoSharedMemory: true}, seccomp.Variant{NoSharedMemory: true, Watched: true, Notices: true}, seccomp.Variant{NoAttributes: true, SelfOnly: true}, seccomp.Variant{NoAttributes: true, NoModes: true, NoSockets: true, NoIPC: true, SelfOnly: true, Notices: true}, seccomp.Variant{NoAttributes: true, NoTruncate: true}, seccomp.Variant{NoIPC: true},
		seccomp.Variant{Command: true, SelfOnly: true, HostFiles: true}, seccomp.Variant{Command: true, SelfOnly: true, HostFiles: true, NoAttributes: true, NoModes: true, NoIPC: true, NoSharedMemory: true, NoExec: true, NoProcesses: true, NoIPv6: true},
		seccomp.Variant{Command: true, NoSockets: true, NoExec: true})
}

func variantOf(bits uint8) seccomp.Variant {
	return seccomp.Variant{
		NoSharedMemory: bits&1 != 0, NoSockets: bits&2 != 0, Watched: bits&4 != 0, AllowSetns: bits&8 != 0,
		SelfOnly: bits&16 != 0,
	}
}

func compiled(t testing.TB, v seccomp.Variant, a seccomp.Arch) machine {
	t.Helper()
	prog, err := seccomp.Compile(seccomp.New(v), a)
	if err != nil {
		t.Fatal(err)
	}
	return newMachine(t, prog)
}

// The filter of every variant decides over every number as the reference does.
func TestFilterDecidesAsThePolicy(t *testing.T) {
	foreign := []uint32{0x40000003, 0x40000028, 0xc000003e, 0xc00000b7, 0}
	for _, a := range arches {
		for i, v := range variants() {
			t.Run(fmt.Sprintf("%s/%d", a, i), func(t *testing.T) {
				p, m := seccomp.New(v), compiled(t, v, a)
				for k, nr := range numbers() {
					for _, audit := range []uint32{a.AuditValue(), foreign[k%len(foreign)]} {
						c := seccomp.Call{Audit: audit, Number: nr}
						if got, want := m.run(t, c), p.Decide(a, c); got != want {
							t.Fatalf("%+v: filter says %v, policy %v", c, got, want)
						}
					}
				}
			})
		}
	}
}

// Arguments: edge values for every number, all of them for the calls whose
// arguments count, and in threes where several count together.
func TestFilterJudgesArgumentsAsThePolicy(t *testing.T) {
	values := edges()
	for _, a := range arches {
		for _, v := range []seccomp.Variant{{}, {NoSharedMemory: true, NoSockets: true, SelfOnly: true}, {AllowSetns: true}, {NoIPv6: true}, {HostFiles: true}, {Scratch: true}, {Notices: true}, {NoAttributes: true}, {NoAttributes: true, NoModes: true}, {NoTruncate: true, HostFiles: true}, {Command: true, SelfOnly: true, HostFiles: true}, {Command: true, NoIPv6: true, NoExec: true, NoProcesses: true}} {
			p, m := seccomp.New(v), compiled(t, v, a)
			same := func(c seccomp.Call) {
				if got, want := m.run(t, c), p.Decide(a, c); got != want {
					t.Fatalf("%s %+v: %+v: filter says %v, policy %v", a, v, c, got, want)
				}
			}
			for nr := range uint32(480) {
				for i := 0; i < len(values); i += 5 { // wrongly checked numbers show at any value
					x := values[i]
					same(seccomp.Call{Audit: a.AuditValue(), Number: nr, Args: [6]uint64{x, x, x, x, x, x}})
				}
			}
			for _, name := range []string{"clone", "fcntl", "ioctl", "socketpair", "personality", "mmap", "shmget", "memfd_create", "prlimit64", "setrlimit", "sched_setattr", "sched_setaffinity", "setpriority", "ioprio_set", "seccomp", "setxattr", "fsetxattr", "close_range", "madvise", "mincore", "preadv2", "fallocate", "lseek", "fadvise64", "fsync", "sendmmsg", "recvmmsg", "semtimedop"} { // one argument decides
				nr := numberOf(t, a, name)
				for i, x := range values {
					y := values[(i*7+3)%len(values)]
					for arg := range 6 {
						c := seccomp.Call{Audit: a.AuditValue(), Number: nr, Args: [6]uint64{y, y, y, y, y, y}}
						c.Args[arg] = x
						same(c)
					}
				}
			}
			two := map[string][]uint64{ // two do: the first of them and its values
				"setsockopt": {1, 0, 1, 6, 17, 41, 58, 255, 263, 282, 6 | 1<<32, 1 | 1<<63}, "setpriority": {0, 0, 1, 2, 3, 2 | 1<<32},
				"getsockopt": {1, 0, 1, 6, 41, 1 | 1<<32}, "ioprio_set": {0, 0, 1, 2, 3, 3 | 1<<32}, "ppoll": {0, 63, 64, 1 << 31, 63 | 1<<32}, "pselect6": {0, 63, 64, 1 << 31, 63 | 1<<32}, "prctl": {0, 1, 4, 9, 15, 21, 35, 36, 37, 41, 22, 23, 22 | 1<<32, 61, 62, 63, 66, 67, 68, 77, 78, 79, 80, 95, 96, 127, 128, 1 << 31, 0x53564d41, 0x59616d61, 0x41555856},
			}
			for name, first := range two {
				nr := numberOf(t, a, name)
				for _, x := range first[1:] {
					for y := range uint64(300) {
						c := seccomp.Call{Audit: a.AuditValue(), Number: nr}
						c.Args[first[0]], c.Args[first[0]+1] = x, y
						same(c)
						c.Args[first[0]+1] = y | 0xdead<<32
						same(c)
					}
					for _, y := range values {
						c := seccomp.Call{Audit: a.AuditValue(), Number: nr}
						c.Args[first[0]], c.Args[first[0]+1] = x, y
						same(c)
					}
				}
			}
			for _, name := range []string{"fchmod", "fchmodat", "fchmodat2", "mknodat", "openat", "openat2", "mkdirat", "renameat2"} { // modes, and flags of open
				for _, mode := range []uint64{0, 0o755, 0o1777, 0o2755, 0o4755, 0o6000, 0o104755, 0o4000 | 1<<16, 0o4000 | 1<<32} {
					for _, flags := range []uint64{0, 0x40, 0x41, 0x400000, 0x410000, 0x10000, 0x4000, 0x40 | 1<<32, 1 << 32} {
						same(seccomp.Call{Audit: a.AuditValue(), Number: numberOf(t, a, name), Args: [6]uint64{3, mode, mode, mode, mode}})
						same(seccomp.Call{Audit: a.AuditValue(), Number: numberOf(t, a, name), Args: [6]uint64{3, flags, flags, mode, flags >> 4}})
					}
				}
			}
			ioctl := numberOf(t, a, "ioctl")
			for _, command := range commands() {
				for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} {
					same(seccomp.Call{Audit: a.AuditValue(), Number: ioctl, Args: [6]uint64{3, command | high}})
				}
			}
			fcntl := numberOf(t, a, "fcntl")
			for command := range uint64(1200) {
				same(seccomp.Call{Audit: a.AuditValue(), Number: fcntl, Args: [6]uint64{3, command}})
				same(seccomp.Call{Audit: a.AuditValue(), Number: fcntl, Args: [6]uint64{3, command, 0x2002}})
			}
			socket := numberOf(t, a, "socket") // three do
			for _, family := range []uint64{0, 1, 2, 3, 9, 10, 11, 16, 17, 38, 40, 2 | 1<<32, 10 | 0xffffffff<<32, 1 << 33} {
				for i, x := range values {
					for _, y := range []uint64{0, 1, 3, 6, 7, 10, 17, 0x80003, 0x80002, 6 | 1<<32, values[(i*7+3)%len(values)]} {
						same(seccomp.Call{Audit: a.AuditValue(), Number: socket, Args: [6]uint64{family, x, y}})
						same(seccomp.Call{Audit: a.AuditValue(), Number: socket, Args: [6]uint64{family, y, x}})
					}
				}
			}
		}
	}
}

// commands is every short command of ioctl of the kinds that the rules name, and those
// that have a direction and a size.
func commands() (all []uint64) {
	heads := []uint64{0, 0x8004, 0x4004, 0x802c, 0x402c, 0x8008, 0x4008, 0x801c, 0xc018, 0x4020, 0xc020, 0xc050, 0x8010}
	for _, head := range heads {
		for _, kind := range []uint64{0, 1, 'R', 'T', 'X', 'f', 'v', '!', 0x89, 0x94} {
			for number := range uint64(128) {
				all = append(all, head<<16|kind<<8|number)
			}
		}
	}
	return all
}

// A table of cases in plain words, against both the filter and the reference:
// they could be wrong together.
func TestVerdicts(t *testing.T) {
	const (
		eperm      = 1
		enomem     = 12
		einval     = 22
		eopnotsupp = 95
		enospc     = 28
		enotty     = 25
		enosys     = 38
		e2big      = 7
		noproto    = 92
		eafnosup   = 97
		high       = 1 << 32
		ignored    = seccomp.Verdict(0x50000) // it succeeds and does nothing
	)
	noticed := seccomp.Variant{Notices: true}
	none, full := seccomp.Variant{}, seccomp.Variant{NoSharedMemory: true, NoSockets: true, Watched: true, AllowSetns: true, SelfOnly: true}
	no := seccomp.Refuse
	checkVerdicts(t, []verdict{
		{none, "read", [6]uint64{}, seccomp.Allow},
		{none, "openat", [6]uint64{}, seccomp.Allow},
		{none, "execve", [6]uint64{}, seccomp.Allow},
		{none, "fsync", [6]uint64{}, ignored},
		{none, "fdatasync", [6]uint64{}, ignored},
		{none, "fadvise64", [6]uint64{3, 0, 0, 3}, seccomp.Allow},  // WILLNEED
		{none, "fadvise64", [6]uint64{3, 0, 0, 4 | high}, ignored}, // DONTNEED
		{none, "mq_open", [6]uint64{}, no(enosys)},
		{none, "shmget", [6]uint64{}, seccomp.Allow},
		{none, "memfd_create", [6]uint64{}, seccomp.Allow},
		{none, "sync", [6]uint64{}, no(eperm)},
		{none, "ptrace", [6]uint64{}, no(eperm)},
		{none, "process_vm_readv", [6]uint64{}, no(eperm)},
		{none, "unshare", [6]uint64{}, no(eperm)},
		{none, "setns", [6]uint64{}, no(eperm)},
		{none, "mount", [6]uint64{}, no(eperm)},
		{none, "bpf", [6]uint64{}, no(eperm)},
		{none, "keyctl", [6]uint64{}, no(eperm)},
		{none, "memfd_secret", [6]uint64{}, no(eperm)},
		{none, "fanotify_mark", [6]uint64{}, no(eperm)},
		{none, "name_to_handle_at", [6]uint64{}, no(eperm)},
		{none, "adjtimex", [6]uint64{}, no(eperm)},
		{none, "userfaultfd", [6]uint64{}, no(eperm)},
		{none, "clone3", [6]uint64{}, no(enosys)},
		{none, "io_uring_setup", [6]uint64{}, no(enosys)},
		{none, "statmount", [6]uint64{}, no(enosys)},
		{none, "clone", [6]uint64{0x1200011}, seccomp.Allow}, // fork
		{none, "clone", [6]uint64{0x3d0f00}, seccomp.Allow},  // pthread_create
		{none, "clone", [6]uint64{0x4111}, seccomp.Allow},    // vfork
		{none, "clone", [6]uint64{0x10000011}, no(eperm)},
		{none, "clone", [6]uint64{0x02000011}, no(eperm)},
		{none, "clone", [6]uint64{0x2011}, no(eperm)},
		{none, "clone", [6]uint64{0x8011}, no(eperm)},
		{none, "clone", [6]uint64{0x10000011 | high}, no(eperm)},
		{none, "clone", [6]uint64{0x1011}, no(einval)}, // CLONE_PIDFD
		{none, "clone", [6]uint64{0x1011 | high}, no(einval)},
		{none, "pidfd_open", [6]uint64{}, no(enosys)},
		{none, "pidfd_send_signal", [6]uint64{}, seccomp.Allow},
		{none, "getsockopt", [6]uint64{3, 1, 3}, seccomp.Allow}, // SO_TYPE
		{none, "getsockopt", [6]uint64{3, 1, 77}, no(noproto)},  // SO_PEERPIDFD
		{none, "getsockopt", [6]uint64{3, 1 | high, 77 | high}, no(noproto)},
		{none, "getsockopt", [6]uint64{3, 6, 77}, seccomp.Allow},
		{none, "setsockopt", [6]uint64{3, 1, 76}, no(noproto)}, // SO_PASSPIDFD
		{none, "fcntl", [6]uint64{0, 1}, seccomp.Allow},
		{none, "fcntl", [6]uint64{0, 4, 0x802}, seccomp.Allow}, // F_SETFL with O_NONBLOCK
		{none, "fcntl", [6]uint64{0, 4, 0x2802}, no(einval)},   // and O_ASYNC
		{none, "fcntl", [6]uint64{0, 4 | high, 0x2000 | high}, no(einval)},
		{none, "fcntl", [6]uint64{0, 8, 0x2000}, seccomp.Allow}, // F_SETOWN
		{none, "ioctl", [6]uint64{0, 0x5452}, ignored},          // FIOASYNC
		{none, "timerfd_create", [6]uint64{}, no(enosys)},
		{none, "signalfd4", [6]uint64{}, no(enosys)},
		{none, "inotify_init1", [6]uint64{}, no(enosys)},
		{none, "inotify_add_watch", [6]uint64{}, no(enosys)},
		{none, "eventfd2", [6]uint64{}, seccomp.Allow},
		{none, "fcntl", [6]uint64{0, 1024, 1}, no(eperm)},        // F_SETLEASE
		{none, "fcntl", [6]uint64{0, 1024 | high, 1}, no(eperm)}, // the kernel reads the low word
		{none, "fcntl", [6]uint64{0, 1026}, no(eperm)},           // F_NOTIFY
		{none, "fcntl", [6]uint64{0, 1030}, seccomp.Allow},       // F_DUPFD_CLOEXEC
		{none, "fcntl", [6]uint64{0, 6}, seccomp.Allow},          // F_SETLK
		{none, "fcntl", [6]uint64{0, 37}, no(einval)},            // F_OFD_SETLK
		{none, "fcntl", [6]uint64{0, 37 | high}, no(einval)},
		{none, "fcntl", [6]uint64{0, 1031}, no(eperm)}, // F_SETPIPE_SZ
		{none, "fcntl", [6]uint64{0, 1040}, no(einval)},
		{none, "setsockopt", [6]uint64{3, 1, 2}, seccomp.Allow},  // SO_REUSEADDR
		{none, "setsockopt", [6]uint64{3, 1, 6}, ignored},        // SO_BROADCAST
		{none, "setsockopt", [6]uint64{3, 1, 7}, ignored},        // SO_SNDBUF
		{none, "setsockopt", [6]uint64{3, 1, 8 | high}, ignored}, // SO_RCVBUF
		{none, "setsockopt", [6]uint64{3, 0, 11}, ignored},       // IP_RECVERR
		{none, "setsockopt", [6]uint64{3, 41, 25}, ignored},      // IPV6_RECVERR
		{none, "setsockopt", [6]uint64{3, 6, 11}, no(noproto)},   // TCP_INFO
		{none, "setsockopt", [6]uint64{3, 1, 33}, no(noproto)},   // SO_RCVBUFFORCE
		{none, "setsockopt", [6]uint64{3, 1, 26}, no(noproto)},   // SO_ATTACH_FILTER
		{none, "setsockopt", [6]uint64{3, 1, 51}, no(noproto)},   // SO_ATTACH_REUSEPORT_CBPF
		{none, "setsockopt", [6]uint64{3, 1 | high, 51}, no(noproto)},
		{none, "setsockopt", [6]uint64{3, 6, 1}, seccomp.Allow},   // TCP_NODELAY
		{none, "setsockopt", [6]uint64{3, 6, 14}, no(noproto)},    // TCP_MD5SIG
		{none, "setsockopt", [6]uint64{3, 6, 32}, no(noproto)},    // TCP_MD5SIG_EXT
		{none, "setsockopt", [6]uint64{3, 6, 38}, no(noproto)},    // TCP_AO_ADD_KEY
		{none, "setsockopt", [6]uint64{3, 17, 1}, no(noproto)},    // UDP_CORK
		{none, "setsockopt", [6]uint64{3, 0, 4}, no(noproto)},     // IP_OPTIONS
		{none, "setsockopt", [6]uint64{3, 0, 35}, no(noproto)},    // IP_ADD_MEMBERSHIP
		{none, "setsockopt", [6]uint64{3, 0, 21}, no(noproto)},    // IP_MINTTL
		{none, "setsockopt", [6]uint64{3, 41, 73}, no(noproto)},   // IPV6_MINHOPCOUNT
		{none, "setsockopt", [6]uint64{3, 41, 26}, seccomp.Allow}, // IPV6_V6ONLY
		{none, "setsockopt", [6]uint64{3, 41, 20}, no(noproto)},   // IPV6_ADD_MEMBERSHIP
		{none, "setsockopt", [6]uint64{3, 41, 32}, no(noproto)},   // IPV6_FLOWLABEL_MGR
		{none, "socket", [6]uint64{10, 1, 0}, seccomp.Allow},
		{seccomp.Variant{HostFiles: true}, "fchmod", [6]uint64{3, 0o4755}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "fchmod", [6]uint64{3, 0o2000}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "fchmod", [6]uint64{3, 0o1777}, seccomp.Allow},
		{seccomp.Variant{HostFiles: true}, "fchmodat", [6]uint64{3, 0, 0o4000 | high}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "fchmodat2", [6]uint64{3, 0, 0o104000}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "mknodat", [6]uint64{3, 0, 0o104755}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "openat", [6]uint64{3, 0, 0x41, 0o4755}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "openat", [6]uint64{3, 0, 0x400001, 0o4755}, no(eperm)},
		{seccomp.Variant{HostFiles: true}, "openat", [6]uint64{3, 0, 0, 0o4755}, seccomp.Allow}, // opens a file that there is: the mode is not read
		{seccomp.Variant{HostFiles: true}, "openat", [6]uint64{3, 0, 0x41, 0o755}, seccomp.Allow},
		{seccomp.Variant{HostFiles: true}, "openat2", [6]uint64{}, no(enosys)},
		{none, "openat2", [6]uint64{}, no(enosys)},
		{seccomp.Variant{HostFiles: true}, "renameat2", [6]uint64{0, 0, 0, 0, 4}, no(einval)},
		{seccomp.Variant{HostFiles: true}, "renameat2", [6]uint64{0, 0, 0, 0, 5 | high}, no(einval)},
		{seccomp.Variant{HostFiles: true}, "renameat2", [6]uint64{0, 0, 0, 0, 3}, seccomp.Allow},
		{none, "fchmod", [6]uint64{3, 0o4755}, seccomp.Allow},
		{seccomp.Variant{NoIPv6: true}, "socket", [6]uint64{10, 1, 0}, no(eafnosup)},
		{seccomp.Variant{NoIPv6: true}, "socket", [6]uint64{10 | high, 3, 0}, no(eafnosup)},
		{seccomp.Variant{NoIPv6: true}, "socket", [6]uint64{2, 1, 0}, seccomp.Allow},
		{none, "prlimit64", [6]uint64{0, 7}, seccomp.Allow},
		{none, "prlimit64", [6]uint64{42, 7}, seccomp.Allow},
		{none, "prlimit64", [6]uint64{1, 7}, no(eperm)},
		{none, "prlimit64", [6]uint64{1 | high, 7}, no(eperm)},
		{none, "prlimit64", [6]uint64{0, 4, 0, 1}, seccomp.Allow}, // RLIMIT_CORE is read
		{none, "prlimit64", [6]uint64{0, 4, 1}, no(0)},
		{none, "prlimit64", [6]uint64{0, 4 | high, 1}, no(0)},
		{none, "prlimit64", [6]uint64{0, 4, high}, no(0)},
		{none, "prlimit64", [6]uint64{0, 4, 1, 1}, no(eperm)},
		{none, "setrlimit", [6]uint64{4, 1}, no(0)},
		{none, "setrlimit", [6]uint64{7, 1}, seccomp.Allow},
		{none, "setpriority", [6]uint64{0, 0, 5}, ignored},
		{none, "setpriority", [6]uint64{1, 7, 19 | high}, ignored},
		{none, "setpriority", [6]uint64{0, 0, 0xfffffffb}, seccomp.Allow}, // the kernel refuses -5
		{full, "setpriority", [6]uint64{0, 0, 5}, ignored},
		{none, "setpriority", [6]uint64{0, 1, 5}, no(eperm)},
		{none, "setpriority", [6]uint64{1, 1, 5}, no(eperm)},
		{none, "setpriority", [6]uint64{2, 0, 5}, no(eperm)}, // all of the user
		{none, "sched_setscheduler", [6]uint64{1, 5}, no(eperm)},
		{none, "sched_setscheduler", [6]uint64{0, 5}, ignored},
		{none, "sched_setscheduler", [6]uint64{7, 5 | 1<<30}, ignored},
		{none, "sched_setscheduler", [6]uint64{0, 3}, seccomp.Allow},
		{full, "sched_setscheduler", [6]uint64{0, 5}, ignored},
		{full, "sched_setscheduler", [6]uint64{7, 5}, no(eperm)},
		{none, "sched_setparam", [6]uint64{1}, no(eperm)},
		{none, "sched_setattr", [6]uint64{}, no(enosys)},
		{none, "sched_setaffinity", [6]uint64{1}, no(eperm)},
		{none, "sched_setaffinity", [6]uint64{7}, ignored},
		{none, "ioprio_set", [6]uint64{1, 0, 3<<13 | 7}, ignored},
		{none, "ioprio_set", [6]uint64{1, 0, 2<<13 | 7}, seccomp.Allow},
		{none, "ioprio_set", [6]uint64{1, 1, 3 << 13}, no(eperm)},
		{none, "ioprio_set", [6]uint64{1, 1}, no(eperm)},
		{none, "ioprio_set", [6]uint64{3, 0}, no(eperm)},
		{none, "process_mrelease", [6]uint64{3}, no(eperm)},
		{none, "seccomp", [6]uint64{1}, no(einval)}, // SECCOMP_SET_MODE_FILTER
		{none, "seccomp", [6]uint64{2}, seccomp.Allow},
		{none, "prctl", [6]uint64{22, 2}, no(einval)},
		{none, "prctl", [6]uint64{4, 0}, seccomp.Allow},
		{full, "prctl", [6]uint64{4, 0}, no(eperm)}, // PR_SET_DUMPABLE
		{seccomp.Variant{Watched: true}, "prctl", [6]uint64{4, 1}, ignored},
		{seccomp.Variant{Watched: true, AllowSetns: true}, "prctl", [6]uint64{4, 1}, seccomp.Allow},
		{none, "prctl", [6]uint64{41, 0}, seccomp.Allow}, // PR_SET_THP_DISABLE
		{full, "prctl", [6]uint64{41, 1}, seccomp.Allow},
		{seccomp.Variant{Watched: true}, "prctl", [6]uint64{41, 0}, no(eperm)},
		{none, "prctl", [6]uint64{38, 1}, seccomp.Allow},
		{none, "prctl", [6]uint64{78, 1, 1 << 20}, no(einval)}, // PR_FUTEX_HASH
		{none, "clone", [6]uint64{0x10900}, no(eperm)},         // a thread with descriptors of its own
		{none, "mincore", [6]uint64{0, 1<<32 - 1}, seccomp.Allow},
		{none, "mincore", [6]uint64{0, 1 << 32}, no(enomem)}, // no signal ends it
		{none, "mincore", [6]uint64{0, 1 << 63}, no(enomem)},
		{none, "madvise", [6]uint64{0, 4096, 4}, seccomp.Allow},           // MADV_DONTNEED
		{none, "madvise", [6]uint64{0, 4096, 12 | high}, no(einval)},      // MADV_MERGEABLE
		{none, "madvise", [6]uint64{0, 4096, 21 | high}, no(einval)},      // MADV_PAGEOUT: visits all mappings of a file for each page
		{none, "madvise", [6]uint64{0, 256<<20 - 4096, 8}, seccomp.Allow}, // MADV_FREE
		{none, "madvise", [6]uint64{0, 256 << 20, 8}, no(einval)},         // no signal ends it
		{none, "madvise", [6]uint64{0, 1 << 40, 8 | high}, no(einval)},
		{full, "madvise", [6]uint64{0, 1 << 40, 8}, no(einval)},
		{none, "madvise", [6]uint64{0, 1 << 40, 4}, seccomp.Allow},
		{none, "madvise", [6]uint64{0, 4096, 25}, no(einval)},  // MADV_COLLAPSE: no signal ends it
		{none, "madvise", [6]uint64{0, 4096, 102}, no(einval)}, // MADV_GUARD_INSTALL: likewise
		{none, "madvise", [6]uint64{0, 4096, 26}, no(einval)},  // an advice of the next kernel
		{none, "madvise", [6]uint64{0, 4096, 9}, no(einval)},   // MADV_REMOVE: makes a hole
		{none, "fallocate", [6]uint64{3, 1, 0, 4096}, seccomp.Allow},
		{none, "fallocate", [6]uint64{3, 3 | high, 0, 4096}, no(eopnotsupp)}, // FALLOC_FL_PUNCH_HOLE: no signal ends it
		{none, "cachestat", [6]uint64{3}, no(enosys)},
		{none, "sendmmsg", [6]uint64{3, 1, 31}, seccomp.Allow},
		{none, "sendmmsg", [6]uint64{3, 1, 32 | high}, no(enosys)}, // no signal ends it
		{none, "semtimedop", [6]uint64{3, 1, 7}, seccomp.Allow},
		{none, "semtimedop", [6]uint64{3, 1, 8}, no(e2big)}, // likewise, and for other calls
		{none, "semop", [6]uint64{3, 1, 500 | high}, no(e2big)},
		{full, "semtimedop", [6]uint64{3, 1, 1}, no(enosys)},
		{none, "preadv2", [6]uint64{3, 0, 1, 0, 0, 1}, seccomp.Allow},
		{none, "preadv2", [6]uint64{3, 0, 1, 0, 0, 8 | 1}, no(eopnotsupp)}, // RWF_NOWAIT
		{none, "prctl", [6]uint64{67, 1}, no(einval)},                      // PR_SET_MEMORY_MERGE
		{none, "splice", [6]uint64{3, 0, 4, 0, 1}, no(einval)},             // keeps a page that nothing counts
		{none, "sendfile", [6]uint64{3, 4, 0, 1}, no(einval)},
		{none, "getsockopt", [6]uint64{3, 6 | high, 35}, no(noproto)}, // TCP_ZEROCOPY_RECEIVE: likewise
		{none, "getsockopt", [6]uint64{3, high, 41}, no(noproto)},     // IP_MSFILTER
		{none, "getsockopt", [6]uint64{3, 0, 48 | high}, no(noproto)}, // MCAST_MSFILTER
		{none, "getsockopt", [6]uint64{3, 41, 48}, no(noproto)},       // the same of IPv6
		{none, "getsockopt", [6]uint64{3, 0, 1}, seccomp.Allow},       // IP_TOS
		{none, "vmsplice", [6]uint64{3, 0, 1}, no(enosys)},
		{none, "close_range", [6]uint64{3, 9, 4}, seccomp.Allow},
		{none, "close_range", [6]uint64{3, 9, 2}, no(einval)},
		{none, "clone", [6]uint64{0x411}, no(eperm)},            // a process that shares descriptors
		{none, "mmap", [6]uint64{0, 0, 0, 0x40022}, no(enomem)}, // huge pages
		{none, "shmget", [6]uint64{0, 0, 0x800}, no(enomem)},
		{none, "memfd_create", [6]uint64{0, 4}, no(enomem)},
		{none, "memfd_create", [6]uint64{0, 4 | 21<<26}, no(enomem)},
		{none, "memfd_create", [6]uint64{0, 1<<32 - 1}, no(einval)},
		{none, "ioctl", [6]uint64{0, 0x5401}, seccomp.Allow},
		{none, "ioctl", [6]uint64{0, 0x8982}, no(enotty)},     // SIOCGIFVLAN: starts modprobe
		{none, "ioctl", [6]uint64{0, 0x8940}, no(enotty)},     // SIOCGIFBR: likewise
		{none, "ioctl", [6]uint64{0, 0x8912}, no(enotty)},     // SIOCGIFCONF: a lock of the whole host
		{none, "ioctl", [6]uint64{0, 0x8946}, no(enotty)},     // SIOCETHTOOL: likewise
		{none, "ioctl", [6]uint64{0, 0x8915}, no(enotty)},     // SIOCGIFADDR: likewise
		{none, "ioctl", [6]uint64{0, 0x8933}, seccomp.Allow},  // SIOCGIFINDEX
		{none, "ioctl", [6]uint64{0, 0x5423}, no(enotty)},     // TIOCSETD: likewise
		{none, "ioctl", [6]uint64{0, 0x8906}, no(enotty)},     // SIOCGSTAMP: timestamps of the whole host
		{none, "ioctl", [6]uint64{0, 0x9408}, no(enotty)},     // BTRFS_IOC_SYNC
		{none, "ioctl", [6]uint64{0, 0xc0506617}, no(enotty)}, // FS_IOC_ADD_ENCRYPTION_KEY
		{none, "ioctl", [6]uint64{0, 0xffffffff_c0506617}, no(enotty)},
		{none, "ioctl", [6]uint64{0, 0xc0506617 | high}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0xc0502100}, seccomp.Allow}, // init's own
		{none, "ioctl", [6]uint64{0, 0x40082104}, seccomp.Allow}, // likewise
		{none, "epoll_ctl", [6]uint64{3, 1, 4}, seccomp.Allow},
		{noticed, "epoll_ctl", [6]uint64{3, 1, 4}, seccomp.Notify},
		{noticed, "epoll_ctl", [6]uint64{3, 1 | high, 4}, seccomp.Notify},
		{noticed, "epoll_ctl", [6]uint64{3, 2, 4}, seccomp.Allow},
		{noticed, "epoll_ctl", [6]uint64{3, 3, 4}, seccomp.Allow},
		{noticed, "socket", [6]uint64{1, 1, 0}, seccomp.Allow},
		{noticed, "socket", [6]uint64{2, 1, 0}, seccomp.Notify},
		{noticed, "socket", [6]uint64{10, 2, 0}, seccomp.Notify},
		{noticed, "socket", [6]uint64{2, 3, 0}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x5412}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x541c}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x540e}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x541d}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x5412 | high}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x5401 | high}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0x5401 | 0xffffffff<<32}, no(eperm)},
		{none, "ioctl", [6]uint64{0, 0xffffffff_80045200}, seccomp.Allow}, // through an int
		{none, "ioctl", [6]uint64{0, 0x5441}, no(25)},                     // terminals of a program's own: ENOTTY
		{none, "socket", [6]uint64{1, 1, 0}, seccomp.Allow},
		{none, "socket", [6]uint64{2, 0x80001, 6}, seccomp.Allow},
		{none, "socket", [6]uint64{10, 0x80802, 17}, seccomp.Allow},
		{none, "socket", [6]uint64{16, 0x80003, 0}, no(eafnosup)}, // netlink: routes
		{none, "socket", [6]uint64{16, 3, 15}, no(eafnosup)},      // kernel object events
		{none, "socket", [6]uint64{2, 3, 6}, no(eperm)},           // raw
		{none, "socket", [6]uint64{2, 0x80803, 17}, no(eperm)},
		{none, "socket", [6]uint64{2, 1, 17}, no(eafnosup)}, // no such pair: starts modprobe
		{none, "socket", [6]uint64{2, 2, 6}, no(eafnosup)},
		{none, "socket", [6]uint64{10, 0x80005, 0}, no(eafnosup)}, // SEQPACKET: likewise
		{none, "socket", [6]uint64{2, 6, 6 | high}, no(eafnosup)},
		{none, "socket", [6]uint64{2, 10, 0}, no(eperm)},     // packet by its old name
		{none, "socket", [6]uint64{2, 1, 262}, no(eafnosup)}, // MPTCP
		{none, "socket", [6]uint64{2, 1, 132}, no(eafnosup)}, // SCTP
		{none, "socket", [6]uint64{2, 2, 1}, no(eafnosup)},   // ping
		{none, "socket", [6]uint64{17, 3, 0}, no(eafnosup)},
		{none, "socket", [6]uint64{38, 5, 0}, no(eafnosup)},
		{none, "socket", [6]uint64{40, 1, 0}, no(eafnosup)},
		{none, "socket", [6]uint64{40 | high, 1, 0}, no(eafnosup)},
		{none, "socketpair", [6]uint64{1}, seccomp.Allow},
		{none, "socketpair", [6]uint64{2}, no(eafnosup)},
		{none, "personality", [6]uint64{0}, seccomp.Allow},
		{none, "personality", [6]uint64{0xffffffff}, seccomp.Allow},
		{none, "personality", [6]uint64{0x40000}, no(eperm)},
		{none, "mmap", [6]uint64{0, 0, 0, 0x21}, seccomp.Allow},
		{none, "sched_setaffinity", [6]uint64{}, ignored},
		{none, "landlock_create_ruleset", [6]uint64{}, no(enosys)},
		{none, "landlock_add_rule", [6]uint64{}, no(enosys)},
		{none, "landlock_restrict_self", [6]uint64{}, no(enosys)},
		{seccomp.Variant{SelfOnly: true}, "landlock_restrict_self", [6]uint64{}, seccomp.Allow}, // init's, when it starts a program
		{seccomp.Variant{AllowSetns: true}, "landlock_restrict_self", [6]uint64{}, seccomp.Allow},
		{full, "mmap", [6]uint64{0, 0, 0, 0x21}, no(enomem)},
		{full, "mmap", [6]uint64{0, 0, 0, 0x23}, no(enomem)},
		{full, "mmap", [6]uint64{0, 0, 0, 0x22}, seccomp.Allow},
		{full, "mmap", [6]uint64{0, 0, 0, 0x122}, no(enomem)}, // a stack, which RLIMIT_DATA does not limit
		{none, "mmap", [6]uint64{0, 0, 0, 0x122}, seccomp.Allow},
		{full, "mmap", [6]uint64{0, 0, 0, 0x01}, seccomp.Allow},
		{full, "memfd_create", [6]uint64{}, no(enosys)},
		{full, "shmget", [6]uint64{}, no(enosys)},
		{full, "socket", [6]uint64{1, 1, 0}, no(eafnosup)},
		{full, "socketpair", [6]uint64{1, 1}, seccomp.Allow},
		{full, "sched_setaffinity", [6]uint64{}, no(eperm)},
		{none, "map_shadow_stack", [6]uint64{}, seccomp.Allow},
		{full, "map_shadow_stack", [6]uint64{}, no(enosys)}, // RLIMIT_DATA does not limit it
		{full, "setns", [6]uint64{}, seccomp.Allow},
		{full, "seccomp", [6]uint64{1}, seccomp.Allow},
		{full, "mmap", [6]uint64{0, 0, 0, 0x40022}, no(enomem)},
		{full, "prlimit64", [6]uint64{0, 7}, seccomp.Allow},
		{full, "prlimit64", [6]uint64{42, 7}, no(eperm)}, // it may be init
		{full, "setpriority", [6]uint64{0, 42, 5}, no(eperm)},
		{full, "unshare", [6]uint64{}, no(eperm)},
	})
}

func TestForeignTables(t *testing.T) {
	m := compiled(t, seccomp.Variant{}, seccomp.AMD64)
	if got := m.run(t, seccomp.Call{Audit: 0x40000003, Number: 20}); got != seccomp.KillProcess {
		t.Errorf("i386 call: got %v, want kill", got)
	}
	if got, want := m.run(t, seccomp.Call{Audit: 0xc000003e, Number: 0x40000000}), seccomp.Refuse(38); got != want {
		t.Errorf("x32 call: got %v, want %v", got, want)
	}
	m = compiled(t, seccomp.Variant{}, seccomp.ARM64)
	if got := m.run(t, seccomp.Call{Audit: 0x40000028, Number: 20}); got != seccomp.KillProcess {
		t.Errorf("arm call: got %v, want kill", got)
	}
}

func TestCompileUnknownArch(t *testing.T) {
	if _, err := seccomp.Compile(seccomp.Policy{}, "riscv64"); err == nil {
		t.Error("an architecture without a table: got a filter, want an error")
	}
}

// TestFiltersTellPoliciesApart: a digest of the filter says which policy is in force.
func TestFiltersTellPoliciesApart(t *testing.T) {
	for _, a := range arches {
		seen := map[string]seccomp.Variant{}
		for _, v := range variants() {
			prog, err := seccomp.Compile(seccomp.New(v), a)
			if err != nil {
				t.Fatal(err)
			}
			if other, dup := seen[string(prog)]; dup {
				t.Errorf("%s, %+v and %+v: got one filter, want two", a, v, other)
			}
			seen[string(prog)] = v
			if again, _ := seccomp.Compile(seccomp.New(v), a); !bytes.Equal(again, prog) {
				t.Errorf("%s, %+v: got two filters, want one", a, v)
			}
		}
	}
}
