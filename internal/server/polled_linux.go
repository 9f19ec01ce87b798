package server

import (
	"io"
	"os"
	"strconv"
	"syscall"
)

// polled returns a reader of the pipe that in is, or in itself if that is no pipe. A goroutine that waits in it keeps no
// thread. A thread that comes out of a wait in a blocking read hands the message on to another thread, which takes a tenth of
// the time of a short answer. done ends a read of the reader that polled has opened.
func polled(in io.Reader) (r io.Reader, done func()) {
	f, ok := in.(*os.File)
	if !ok {
		return in, func() {}
	}
	st, err := f.Stat()
	if err != nil || st.Mode().Type() != os.ModeNamedPipe {
		return in, func() {}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return in, func() {}
	}
	var again *os.File
	_ = raw.Control(func(fd uintptr) {
		flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		if flags&syscall.O_ACCMODE == syscall.O_WRONLY {
			return
		}
		// Opened anew, because other programs may share the given file description and its flag O_NONBLOCK.
		again, err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(fd)), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	})
	if err != nil || again == nil {
		return in, func() {}
	}
	return again, func() { _ = again.Close() }
}
