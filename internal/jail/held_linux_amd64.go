package jail

import "golang.org/x/sys/unix"

// syscallBytes is the instruction that calls the kernel.
var syscallBytes = []byte{0x0f, 0x05}

// codeAndStack returns the address of the next instruction, and one on the stack below what is used.
func codeAndStack(r *unix.PtraceRegs) (code, stack uintptr) {
	return uintptr(r.Rip), uintptr(r.Rsp)&^15 - 1024
}

// setCall sets the registers for a system call.
func setCall(r *unix.PtraceRegs, nr uint64, args [3]uint64) {
	r.Rax, r.Orig_rax = nr, ^uint64(0) // no call of the kernel is restarted
	r.Rdi, r.Rsi, r.Rdx = args[0], args[1], args[2]
}

// returned returns what a system call has returned.
func returned(r *unix.PtraceRegs) int64 { return int64(r.Rax) }
