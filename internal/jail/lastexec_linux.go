package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// LastExec lets the calling thread, and all that it starts from now on, execute one program. Afterwards, and once end was
// called, execve and execveat fail with ENOSYS. Landlock cannot do that: it has to allow the loader of a program, and a loader
// executes every file that it is given. The caller calls end when the program runs or has failed to start.
//
// Preconditions: those of [ConfineThread], which the caller has called.
func LastExec() (end func(), err error) {
	listener, err := listenForExec()
	if err != nil {
		return nil, fmt.Errorf("load a filter: %w", err)
	}
	over, stop, err := os.Pipe()
	if err != nil {
		closeAll(listener)
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		allowOne(listener, over)
		closeAll(listener) // without a listener, the kernel refuses the call
	}()
	return func() {
		_ = stop.Close()
		<-done
		_ = over.Close()
	}, nil
}

// listenForExec makes the calls that execute a program wait for the holder of the returned descriptor. Calls of other
// architectures and of x32 fail.
func listenForExec() (listener int, err error) {
	arch, known := seccomp.Native()
	if !known {
		return -1, errors.New("no table of system calls for this architecture")
	}
	const load, equal, atLeast, ret = unix.BPF_LD | unix.BPF_ABS | unix.BPF_W, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 4}, // arch of struct seccomp_data
		{Code: equal, Jf: 5, K: arch.AuditValue()},
		{Code: load, K: 0}, // nr
		{Code: atLeast, Jt: 3, K: 1 << 30},
		{Code: equal, Jt: 3, K: unix.SYS_EXECVE},
		{Code: equal, Jt: 2, K: unix.SYS_EXECVEAT},
		{Code: ret, K: uint32(seccomp.Allow)},
		{Code: ret, K: uint32(seccomp.Refuse(uint16(unix.ENOSYS)))},
		{Code: ret, K: uint32(seccomp.Notify)},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// allowOne waits for one call and lets the kernel carry it out. It returns early at the end of over.
func allowOne(listener int, over *os.File) {
	raw, err := over.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		wait := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			_, err = unix.Poll(wait, -1)
		}
		if err != nil || wait[0].Revents&unix.POLLIN == 0 {
			return
		}
		var call [80]byte // struct seccomp_notif
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&call))); e != 0 {
			return // the process has ended
		}
		answer := binary.LittleEndian.AppendUint64(nil, binary.LittleEndian.Uint64(call[:])) // its id, in struct seccomp_notif_resp
		answer = append(answer, make([]byte, 12)...)
		answer = binary.LittleEndian.AppendUint32(answer, unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE)
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer[0])))
	})
}
