package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pair makes a SEQPACKET pair. Receives from ours wait at most answerLimit.
func pair() (ours, theirs int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("socketpair: %w", err)
	}
	if err := hearFor(p[0], answerLimit); err != nil {
		closeAll(p[0], p[1])
		return -1, -1, fmt.Errorf("socketpair: %w", err)
	}
	return p[0], p[1], nil
}

// hearFor sets the timeout of receives from a socket.
func hearFor(fd int, limit time.Duration) error {
	t := unix.NsecToTimeval(limit.Nanoseconds())
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t)
}

// answerLimit is how long builder, spawner and init may take to answer. They usually answer
// within 10 ms, unless they are stopped or broken.
const answerLimit = 10 * time.Second

func send(fd int, p []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(fd, p, oob, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive reads one packet and its descriptors. An empty packet means end of file.
func receive(fd int, p []byte) ([]byte, []int, error) {
	var oob [128]byte
	for {
		n, on, _, _, err := unix.Recvmsg(fd, p, oob[:], unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		fds, err := rights(oob[:on])
		return p[:n], fds, err
	}
}

func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		f, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return nil, err
		}
		fds = append(fds, f...)
	}
	return fds, nil
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func word(p []byte, i int) uint32 {
	if len(p) < 4*i+4 {
		return 0
	}
	return binary.LittleEndian.Uint32(p[4*i:])
}

func words(v ...uint32) []byte {
	p := make([]byte, 0, 4*len(v))
	for _, x := range v {
		p = binary.LittleEndian.AppendUint32(p, x)
	}
	return p
}

// conn is a packet socket on the runtime's poller, so that waiting does not block a thread.
type conn struct{ f *os.File }

// newConn takes ownership of the descriptor and closes it on error.
func newConn(fd int) (*conn, error) {
	f, err := Polled(fd, "sandbox")
	if err != nil {
		return nil, err
	}
	return &conn{f}, nil
}

// ErrNotPolled means that the kernel refuses to add a descriptor to epoll. That happens
// when the server's user has used up its epoll watches.
var ErrNotPolled = errors.New("the kernel refuses to watch a descriptor; fs.epoll.max_user_watches of the server's user may be used up")

// Polled makes a descriptor non-blocking and hands it to the runtime's poller. It takes
// ownership of the descriptor and closes it on error. If the poller refuses the
// descriptor, Polled fails with ErrNotPolled; os.NewFile alone does not report that,
// and later reads fail.
func Polled(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		closeAll(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.SetDeadline(time.Time{}); err != nil { // fails on files that are not polled
		_ = f.Close()
		return nil, ErrNotPolled
	}
	return f, nil
}

func (c *conn) receive(p []byte) (n int, fds []int, err error) {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var oob [128]byte
	var on int
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, on, _, _, rerr = unix.Recvmsg(int(fd), p, oob[:], unix.MSG_CMSG_CLOEXEC)
			if !errors.Is(rerr, unix.EINTR) {
				return !errors.Is(rerr, unix.EAGAIN)
			}
		}
	})
	if err == nil {
		err = rerr
	}
	if err != nil {
		return 0, nil, err
	}
	fds, err = rights(oob[:on])
	return n, fds, err
}

func (c *conn) send(p []byte, fds ...int) error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Write(func(fd uintptr) bool {
		serr = send(int(fd), p, fds...)
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err == nil {
		err = serr
	}
	return err
}

func (c *conn) close() { _ = c.f.Close() }
