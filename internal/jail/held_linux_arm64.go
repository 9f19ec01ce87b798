package jail

import "golang.org/x/sys/unix"

// syscallBytes is the instruction that calls the kernel.
var syscallBytes = []byte{0x01, 0x00, 0x00, 0xd4}

// codeAndStack returns the address of the next instruction, and one on the stack below what is used.
func codeAndStack(r *unix.PtraceRegs) (code, stack uintptr) {
	return uintptr(r.Pc), uintptr(r.Sp)&^15 - 1024
}

// setCall sets the registers for a system call.
func setCall(r *unix.PtraceRegs, nr uint64, args [3]uint64) {
	r.Regs[8] = nr
	copy(r.Regs[:], args[:])
}

// returned returns what a system call has returned.
func returned(r *unix.PtraceRegs) int64 { return int64(r.Regs[0]) }
