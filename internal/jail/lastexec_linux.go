package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LastExec makes a process execute no program any more: execve and execveat fail with EACCES, in it and in all
// that it starts. Landlock cannot do that: it has to allow the loader of a program, and a loader executes every file that it
// is given. LastExec also does what [OwnLimits] does.
//
// Preconditions: the calling thread traces the process, which is held at the first instruction of its program, and the process
// gets no new privileges. If LastExec fails, the process is as it was, or has ended.
func LastExec(pid int) error { return filtered(pid, unix.SYS_EXECVE, unix.SYS_EXECVEAT) }

// OwnLimits keeps a process, and all that it starts, from what Landlock does not hold:
//
//   - It changes no resource limits of other processes. One that may open no more files, or has no more time, does nothing.
//   - It enters no namespaces, and opens no files by handles. The user of this program has all rights in the user namespaces of its
//     sandboxes, and since Linux 6.18 a handle that is guessed opens a namespace.
//   - It makes no user namespaces. A socket from the network of one puts interfaces into the networks of sandboxes, because the user has
//     all rights in both.
//   - It starts no processes beside itself. Nobody would wait for such a child of this program.
//   - It takes no leases of files. A lease keeps this program from opening its own files.
//   - It traces no processes. The kernel shows the end of a traced process to this program only after the one that traces it has seen it.
//
// Programs of other architectures, such as those of 32 bits, then work no more.
//
// Preconditions and failures: as those of [LastExec].
func OwnLimits(pid int) error { return filtered(pid) }

// filtered makes a process load a filter that refuses calls.
func filtered(pid int, calls ...uint32) error {
	ins := callFilter(calls)
	if ins == nil {
		return errors.New("no filter for this architecture")
	}
	return within(pid, func(c caller) error {
		filter := filterBytes(ins)
		program := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(len(ins))), uint64(c.stack)+16) // struct sock_fprog
		if _, err := c.call(unix.SYS_SECCOMP, [3]uint64{unix.SECCOMP_SET_MODE_FILTER, 0, uint64(c.stack)}, append(program, filter...)); err != nil {
			return fmt.Errorf("make the process load a filter: %w", err)
		}
		return nil
	})
}

// Apart puts a process into a Landlock domain of its own, with what it starts. A process that a confined thread has started is in the
// domain of that thread: it could trace the thread, and so use all memory of this program, and send it signals, which
// end this program. In its own domain it also makes no devices.
//
// Preconditions: those of [LastExec], and the kernel has Landlock. If Apart fails, the process may have a descriptor more.
func Apart(pid int) error {
	if auditArch == 0 {
		return errors.New("no calls for this architecture")
	}
	abi := landlockABI()
	attr := binary.LittleEndian.AppendUint64(nil, llMakeChar|llMakeBlock) // a ruleset has to hold something
	if abi >= 6 {
		attr = binary.LittleEndian.AppendUint64(attr, 0)
		attr = binary.LittleEndian.AppendUint64(attr, llScopeSockets|llScopeSignals)
	}
	return within(pid, func(c caller) error {
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

// Foreign reports whether a process cannot be made to call the kernel as [LastExec], [OwnLimits] and [Apart] do, although this program's
// architecture has them: its program is of another one, such as one of 32 bits, or has no code where it begins.
//
// Preconditions: those of [LastExec].
func Foreign(pid int) bool {
	if auditArch == 0 {
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
	err = f(c)
	_, restored := unix.PtracePokeText(pid, c.code, was)
	return errors.Join(err, restored, setRegisters(pid, &before))
}

// Become gives a process the rights of a user and a group, without further groups. Without all rights of root, the
// caller can set no limits of the process afterwards. The preconditions are those of [LastExec]. If Become fails, the process must not go on.
func Become(pid, uid, gid int) error {
	if auditArch == 0 {
		return errors.New("no calls for this architecture")
	}
	u, g := uint64(uid), uint64(gid)
	return within(pid, func(c caller) error {
		for _, call := range [][4]uint64{
			{unix.SYS_SETGROUPS},
			{unix.SYS_SETRESGID, g, g, g},
			{unix.SYS_SETRESUID, u, u, u},
			{unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uint64(unix.SIGKILL)}, // the kernel resets this and the next with the user
			{unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1},
		} {
			if _, err := c.call(call[0], [3]uint64(call[1:]), nil); err != nil {
				return fmt.Errorf("call %d: %w", call[0], err)
			}
		}
		return nil
	})
}

// call makes the process call the kernel, with data on its stack. It changes the registers and the next instruction.
func (c caller) call(nr uint64, args [3]uint64, data []byte) (result int64, err error) {
	if len(data) > 0 {
		if _, err = unix.PtracePokeData(c.pid, c.stack, data); err != nil {
			return 0, err
		}
	}
	if _, err = unix.PtracePokeText(c.pid, c.code, syscallBytes); err != nil {
		return 0, err
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
		return 0, unix.Errno(-result)
	}
	return result, nil
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

// callFilter returns a filter that refuses calls, those that OwnLimits names, and prlimit64 for other processes. It also refuses all calls of other
// architectures and of x32.
func callFilter(calls []uint32) []unix.SockFilter {
	if auditArch == 0 {
		return nil
	}
	calls = append(slices.Clone(calls), unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_PTRACE)
	const load, equal, ret, start = unix.BPF_LD | unix.BPF_ABS | unix.BPF_W, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K, 16 // start of args
	n := uint8(len(calls))
	all := []unix.SockFilter{
		{Code: load, K: 4}, // arch of struct seccomp_data
		{Code: equal, Jf: n + 14, K: auditArch},
		{Code: load, K: 0}, // nr
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: n + 12, K: 1 << 30},
	}
	for i, call := range calls {
		all = append(all, unix.SockFilter{Code: equal, Jt: n + 11 - uint8(i), K: call})
	}
	return append(all, []unix.SockFilter{
		{Code: equal, Jt: 12, K: unix.SYS_CLONE3}, // its flags are in memory; programs then use clone
		{Code: equal, Jt: 1, K: unix.SYS_CLONE},
		{Code: equal, Jf: 2, K: unix.SYS_UNSHARE},
		{Code: load, K: start}, // the flags
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 7, Jf: 6, K: unix.CLONE_PARENT | unix.CLONE_NEWUSER},
		{Code: equal, Jf: 2, K: unix.SYS_FCNTL},
		{Code: load, K: start + 8}, // what it does
		{Code: equal, Jt: 4, Jf: 3, K: unix.F_SETLEASE},
		{Code: equal, Jf: 2, K: unix.SYS_PRLIMIT64},
		{Code: load, K: start}, // the process; its upper half says nothing
		{Code: equal, Jf: 1, K: 0},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}...)
}
