package process

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Dial connects to a port of the sandbox's loopback address.
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if port < 1 || port > 65535 {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "there is no port %d", port)
	}
	if s.hall.Mode() == jail.ModePlain {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "a sandbox at isolation %s has no ports", sandboxmcp.TierL1).
			WithHint("run `sandboxmcp doctor` to see what keeps namespaces from being made")
	}
	fd, err := s.connect(ctx, port)
	switch {
	case errors.Is(err, jail.ErrStopped):
		return nil, ctx.Err()
	case errors.Is(err, jail.ErrEnded), errors.Is(err, unix.ESRCH), errors.Is(err, os.ErrClosed):
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox has ended, and none of its ports can be reached").WithHint("use a new one").WithCause(err)
	case err != nil:
		return nil, unavailable(err)
	}
	return established(ctx, fd, port)
}

func (s *sandbox) connect(ctx context.Context, port int) (int, error) {
	release, err := s.hold()
	if err != nil {
		return -1, err
	}
	defer release()
	return s.slot.Connect(ctx.Done(), port)
}

// established takes over a connecting socket and waits until it is connected.
func established(ctx context.Context, fd, port int) (net.Conn, error) {
	f, err := jail.Polled(fd, "port")
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = f.Close() }() // FileConn has a copy
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	bad := 0
	err = raw.Write(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, failed := unix.Poll(poll, 0); n == 0 || errors.Is(failed, unix.EINTR) {
			return false
		}
		bad, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		return true
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case bad != 0:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, Err: os.NewSyscallError("connect", unix.Errno(bad))}
	}
	return net.FileConn(f)
}
