package jail

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Terminal opens a pair of pseudo terminals of the sandbox. The server keeps the master;
// slave becomes the streams of a program. The caller closes both. A sandbox has eight
// pairs at most; beyond them Terminal fails with ENOSPC. Programs cannot make any. A
// terminal carries bytes alone, and no descriptors.
//
// Preconditions: SlotConfig.Terminal; TIOCGPTPEER (Linux 4.13).
func (s *Slot) Terminal(columns, rows uint16) (master, slave int, err error) {
	if s.ptmx < 0 {
		return -1, -1, errors.ErrUnsupported
	}
	if master, err = unix.Open("/proc/self/fd/"+strconv.Itoa(s.ptmx), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
		return -1, -1, err
	}
	err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	if err == nil {
		err = ResizeTerminal(master, columns, rows)
	}
	if err == nil {
		slave, err = peer(master)
	}
	if err != nil {
		closeAll(master)
		return -1, -1, err
	}
	return master, slave, nil
}

// ResizeTerminal sets the size of a terminal. Its foreground processes get SIGWINCH if it
// is another one.
func ResizeTerminal(master int, columns, rows uint16) error {
	return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
}

// peer opens the other end of a terminal. It needs no name, so no mount decides.
func peer(master int) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
