package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openAny opens a file, a pipe or a device for reading. Opening a named pipe waits for a
// program that writes to it, or for the end of ctx.
func openAny(ctx context.Context, path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode()&fs.ModeNamedPipe == 0 {
		return os.Open(path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := awaitWriter(ctx, f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// awaitWriter waits until a program has opened a named pipe for writing. Until then a
// pipe that was opened with O_NONBLOCK reads as ended.
func awaitWriter(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	err = raw.Read(func(fd uintptr) bool {
		n, failed := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
	if !stop() {
		return ctx.Err()
	}
	return err
}
