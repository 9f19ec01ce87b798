package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LastExec makes a process execute no program any more: execve and execveat fail with EACCES, in it and in all
// that it starts. Landlock cannot do that: it has to allow the loader of a program, and a loader executes every file that it
// is given.
//
// Preconditions: the calling thread traces the process, which is held at the first instruction of its program, and the process
// gets no new privileges. If LastExec fails, the process is as it was, or has ended.
func LastExec(pid int) error {
	ins := execFilter()
	if ins == nil {
		return errors.New("no filter for this architecture")
	}
	before, err := registers(pid)
	if err != nil {
		return fmt.Errorf("read registers: %w", err)
	}
	code, stack := codeAndStack(&before)
	was := make([]byte, len(syscallBytes))
	if _, err = unix.PtracePeekText(pid, code, was); err != nil {
		return fmt.Errorf("read code: %w", err)
	}
	filter := filterBytes(ins)
	program := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(len(ins))), uint64(stack)+16) // struct sock_fprog
	if err = callSeccomp(pid, before, append(program, filter...)); err != nil {
		err = fmt.Errorf("make the process load a filter: %w", err)
	}
	_, restored := unix.PtracePokeText(pid, code, was)
	return errors.Join(err, restored, setRegisters(pid, &before))
}

// Become gives a process the rights of a user and a group, without further groups. Without all rights of root, the
// caller can set no limits of the process afterwards. The preconditions are those of LastExec. If Become fails, the process must not go on.
func Become(pid, uid, gid int) error {
	if syscallBytes == nil {
		return errors.New("not known on this architecture")
	}
	before, err := registers(pid)
	if err != nil {
		return fmt.Errorf("read registers: %w", err)
	}
	code, _ := codeAndStack(&before)
	was := make([]byte, len(syscallBytes))
	if _, err = unix.PtracePeekText(pid, code, was); err != nil {
		return fmt.Errorf("read code: %w", err)
	}
	if _, err = unix.PtracePokeText(pid, code, syscallBytes); err != nil {
		return fmt.Errorf("write code: %w", err)
	}
	u, g := uint64(uid), uint64(gid)
	for _, c := range [][4]uint64{
		{unix.SYS_SETGROUPS},
		{unix.SYS_SETRESGID, g, g, g},
		{unix.SYS_SETRESUID, u, u, u},
		{unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uint64(unix.SIGKILL)}, // the kernel resets this and the next with the user
		{unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1},
	} {
		r := before
		setCall(&r, c[0], [3]uint64(c[1:]))
		if err = callKernel(pid, r); err != nil {
			return fmt.Errorf("call %d: %w", c[0], err)
		}
	}
	_, err = unix.PtracePokeText(pid, code, was)
	return errors.Join(err, setRegisters(pid, &before))
}

// callSeccomp makes a process load the filter of a struct sock_fprog, which is written to its stack. It changes the registers
// and the next instruction.
func callSeccomp(pid int, r unix.PtraceRegs, program []byte) error {
	code, stack := codeAndStack(&r)
	if _, err := unix.PtracePokeData(pid, stack, program); err != nil {
		return err
	}
	if _, err := unix.PtracePokeText(pid, code, syscallBytes); err != nil {
		return err
	}
	setCall(&r, unix.SYS_SECCOMP, [3]uint64{unix.SECCOMP_SET_MODE_FILTER, 0, uint64(stack)})
	return callKernel(pid, r)
}

// callKernel makes a process call the kernel. Its next instruction has to do that. It changes the registers.
func callKernel(pid int, r unix.PtraceRegs) error {
	if err := setRegisters(pid, &r); err != nil {
		return err
	}
	if err := singleStep(pid); err != nil {
		return err
	}
	after, err := registers(pid)
	if err == nil && returned(&after) != 0 {
		err = unix.Errno(-returned(&after))
	}
	return err
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
	return r, regset(unix.PTRACE_GETREGSET, pid, &r)
}

func setRegisters(pid int, r *unix.PtraceRegs) error { return regset(unix.PTRACE_SETREGSET, pid, r) }

func regset(what uintptr, pid int, r *unix.PtraceRegs) error {
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(r))}
	v.SetLen(int(unsafe.Sizeof(*r)))
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, what, uintptr(pid), unix.NT_PRSTATUS, uintptr(unsafe.Pointer(&v)), 0, 0); e != 0 {
		return e
	}
	return nil
}

// execFilter returns the filter of [LastExec]. It also refuses all calls of other architectures and of x32.
func execFilter() []unix.SockFilter {
	if auditArch == 0 {
		return nil
	}
	const load, equal, allow, refuse = unix.BPF_LD | unix.BPF_ABS | unix.BPF_W, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
	return []unix.SockFilter{
		{Code: load, K: 4}, // arch of struct seccomp_data
		{Code: equal, Jf: 5, K: auditArch},
		{Code: load, K: 0}, // nr
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: 3, K: 1 << 30},
		{Code: equal, Jt: 2, K: unix.SYS_EXECVE},
		{Code: equal, Jt: 1, K: unix.SYS_EXECVEAT},
		{Code: unix.BPF_RET | unix.BPF_K, K: allow},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse},
	}
}
