package jail

import (
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ForkExec is [syscall.ForkExec] for a program that is open as the descriptor exe. attr.Files must
// have at least one descriptor.
//
// In the child, syscall.ForkExec copies descriptors to the numbers from the highest one of
// attr.Files on, and to 0, 1 and so on, whatever is open there. If exe were among these, execve
// would find a pipe. So exe gets a number between them.
func ForkExec(exe int, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	own := *attr
	own.Files = slices.Clone(attr.Files)
	program, err := unix.FcntlInt(uintptr(exe), unix.F_DUPFD_CLOEXEC, len(own.Files))
	if err != nil {
		return -1, err
	}
	defer closeAll(program)
	last := &own.Files[len(own.Files)-1]
	above, err := unix.FcntlInt(*last, unix.F_DUPFD_CLOEXEC, program+1)
	if err != nil {
		return -1, err
	}
	defer closeAll(above)
	*last = uintptr(above)
	return syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(program), argv, &own)
}
