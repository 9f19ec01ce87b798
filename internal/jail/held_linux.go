package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// Calls says which system calls of a held process are refused besides those that no program in a sandbox may make.
type Calls struct {
	NoExec       bool // it executes no further program
	NoProcesses  bool // it starts no process
	NoSockets    bool // it makes no sockets
	NoShared     bool // it makes no memory that processes share, which no limit of a process counts
	NoAttributes bool // it changes no modes, owners, times and attributes of files
}

// LimitCalls puts a process behind a filter of system calls, with all that it starts. The filter has the same list as those of sandboxes. What
// it refuses, Landlock does not hold:
//
//   - A loader executes every file that it is given, and Landlock has to allow the loader of a program.
//   - Limits of other processes. One that may open no more files, or has no more time, does nothing.
//   - Namespaces, and files opened by handles. The user of this program has all rights in the user namespaces of its
//     sandboxes, and since Linux 6.18 a handle that is guessed opens a namespace.
//   - New user namespaces. A socket from the network of one puts interfaces into the networks of sandboxes, because the user has
//     all rights in both.
//   - Processes beside itself. Nobody would wait for such a child of this program.
//   - Leases of files, which keep this program from opening its own files, and files opened neither to be read nor to be written.
//   - System V IPC. Its memory, messages and semaphores stay when all processes that used them have ended, and the memory counts for no process.
//   - Tracing. The kernel shows the end of a traced process to this program only after the one that traces it has seen it.
//
// Programs of other architectures, such as those of 32 bits, are ended.
//
// Preconditions: the calling thread traces the process, which is held at the first instruction of its program, and the process
// gets no new privileges. If LimitCalls fails, the process is as it was, or has ended.
func LimitCalls(pid int, c Calls) error {
	arch, ok := seccomp.Native()
	if !ok {
		return errNoCalls
	}
	filter, err := seccomp.Filter(seccomp.Variant{
		Command: true, SelfOnly: true, HostFiles: true, NoIPv6: !HaveV6(), NoExec: c.NoExec, NoProcesses: c.NoProcesses,
		NoSockets: c.NoSockets, NoAttributes: c.NoAttributes, NoModes: c.NoAttributes, NoIPC: true, NoSharedMemory: c.NoShared,
	}, arch)
	if err != nil {
		return err
	}
	return within(pid, func(c caller) error {
		at := uint64(c.stack) - uint64(len(filter))
		program := binary.LittleEndian.AppendUint64(nil, uint64(len(filter)/seccomp.InstructionSize)) // struct sock_fprog
		if _, err := unix.PtracePokeData(pid, uintptr(at), filter); err != nil {
			return fmt.Errorf("write a filter: %w", err)
		}
		if _, err := c.call(unix.SYS_SECCOMP, [3]uint64{unix.SECCOMP_SET_MODE_FILTER, 0, uint64(c.stack)}, binary.LittleEndian.AppendUint64(program, at)); err != nil {
			return fmt.Errorf("make the process load a filter: %w", err)
		}
		return nil
	})
}

// Apart puts a process into a Landlock domain of its own, with what it starts. A process that a confined thread has started is in the
// domain of that thread: it could trace the thread, and so use all memory of this program, and send it signals, which
// end this program. In its own domain it also makes no devices. signals reports whether it can send signals to others; Linux before 6.12
// does not keep it from that.
//
// Preconditions: those of [LimitCalls], and the kernel has Landlock. If Apart fails, the process may have a descriptor more.
func Apart(pid int) (signals bool, err error) {
	if len(syscallBytes) == 0 {
		return true, errNoCalls
	}
	abi := landlockABI()
	attr := binary.LittleEndian.AppendUint64(nil, llMakeChar|llMakeBlock) // a ruleset has to hold something
	if abi >= 6 {
		attr = binary.LittleEndian.AppendUint64(attr, 0)
		attr = binary.LittleEndian.AppendUint64(attr, llScopeSockets|llScopeSignals)
	}
	return abi < 6, within(pid, func(c caller) error {
		rules, err := c.call(unix.SYS_LANDLOCK_CREATE_RULESET, [3]uint64{uint64(c.stack), uint64(len(attr)), 0}, attr)
		if err == nil {
			_, err = c.call(unix.SYS_LANDLOCK_RESTRICT_SELF, [3]uint64{uint64(rules), uint64(quiet(abi)), 0}, nil)
			_, closed := c.call(unix.SYS_CLOSE, [3]uint64{uint64(rules)}, nil)
			err = errors.Join(err, closed)
		}
		if err != nil {
			return fmt.Errorf("make the process enter a domain: %w", err)
		}
		return nil
	})
}

// Foreign reports whether a process cannot be made to call the kernel as [LimitCalls] and [Apart] do, although this program's
// architecture has them: its program is of another one, such as one of 32 bits, or has no code where it begins.
//
// Preconditions: those of [LimitCalls].
func Foreign(pid int) bool {
	if len(syscallBytes) == 0 {
		return false
	}
	var r unix.PtraceRegs
	n, err := regset(unix.PTRACE_GETREGSET, pid, &r)
	if err != nil {
		return false
	}
	code, _ := codeAndStack(&r)
	_, err = unix.PtracePeekText(pid, code, make([]byte, len(syscallBytes)))
	return n != int(unsafe.Sizeof(r)) || err != nil
}

// caller makes a process call the kernel.
type caller struct {
	pid   int
	regs  unix.PtraceRegs // as they were
	code  uintptr
	stack uintptr // where data is written
}

// within calls f, and then gives the process the registers and the instruction back that it had.
func within(pid int, f func(c caller) error) error {
	before, err := registers(pid)
	if err != nil {
		return fmt.Errorf("read registers: %w", err)
	}
	c := caller{pid: pid, regs: before}
	c.code, c.stack = codeAndStack(&before)
	was := make([]byte, len(syscallBytes))
	if _, err = unix.PtracePeekText(pid, c.code, was); err != nil {
		return fmt.Errorf("read code: %w", err)
	}
	if _, err = unix.PtracePokeText(pid, c.code, syscallBytes); err != nil {
		return fmt.Errorf("write code: %w", err)
	}
	err = f(c)
	_, restored := unix.PtracePokeText(pid, c.code, was)
	return errors.Join(err, restored, setRegisters(pid, &before))
}

// call makes the process call the kernel, with data on its stack. It changes the registers.
func (c caller) call(nr uint64, args [3]uint64, data []byte) (result int64, err error) {
	if len(data) > 0 {
		if _, err = unix.PtracePokeData(c.pid, c.stack, data); err != nil {
			return 0, err
		}
	}
	r := c.regs
	setCall(&r, nr, args)
	if err = setRegisters(c.pid, &r); err != nil {
		return 0, err
	}
	if err = singleStep(c.pid); err != nil {
		return 0, err
	}
	after, err := registers(c.pid)
	if err != nil {
		return 0, err
	}
	if result = returned(&after); result < 0 {
		return 0, callError{unix.Errno(-result)}
	}
	return result, nil
}

// callError is the kernel's answer to a call of a held process.
type callError struct{ unix.Errno }

func (e callError) Unwrap() error { return e.Errno }

// errNoCalls is the error on an architecture for which this package has no calls.
var errNoCalls = errors.New("no calls for this architecture")

// Lacking reports whether [LimitCalls] and [Apart] failed with err because this program or its kernel has no such wall, or because a
// filter around this program refuses the call. Everything else is due to the held process, or to what is used up at the moment.
func Lacking(err error) bool {
	var e callError
	return errors.Is(err, errNoCalls) || errors.As(err, &e) && slices.Contains([]unix.Errno{unix.ENOSYS, unix.EINVAL, unix.EPERM, unix.EOPNOTSUPP}, e.Errno)
}

// singleStep makes a process execute one instruction.
func singleStep(pid int) error {
	if err := unix.PtraceSingleStep(pid); err != nil {
		return err
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case !ws.Stopped() || ws.StopSignal() != unix.SIGTRAP:
			return fmt.Errorf("the process has the state %#x", int(ws))
		default:
			return nil
		}
	}
}

func registers(pid int) (r unix.PtraceRegs, err error) {
	_, err = regset(unix.PTRACE_GETREGSET, pid, &r)
	return r, err
}

func setRegisters(pid int, r *unix.PtraceRegs) error {
	_, err := regset(unix.PTRACE_SETREGSET, pid, r)
	return err
}

// regset reads or sets registers, and returns their bytes.
func regset(what uintptr, pid int, r *unix.PtraceRegs) (int, error) {
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(r))}
	v.SetLen(int(unsafe.Sizeof(*r)))
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, what, uintptr(pid), unix.NT_PRSTATUS, uintptr(unsafe.Pointer(&v)), 0, 0); e != 0 {
		return 0, e
	}
	return int(v.Len), nil
}
