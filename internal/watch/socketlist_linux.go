package watch

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socketList is a netlink socket through which the kernel lists the Unix sockets of a sandbox. Only Group.run uses it.
type socketList struct {
	is     bool // the socket is open
	fd     int
	opened chan int  // receives the descriptor, or -1; nil: the socket is not being opened
	from   time.Time // earliest time of the next attempt to open the socket
}

// open opens the socket, unless it is open. is reports whether the socket is open. late reports that opening has begun and
// has not ended yet.
func (l *socketList) open(w *Group) (is, late bool) {
	if l.is || time.Now().Before(l.from) {
		return l.is, false
	}
	if l.opened == nil {
		opened := make(chan int, 1)
		l.opened = opened
		w.exact.reads.Go(func() {
			fd, err := w.slot.SocketList(w.quit)
			if err != nil {
				fd = -1
			}
			opened <- fd
		})
	}
	fd, done := await(l.opened, mostPatience)
	if !done {
		return false, true
	}
	l.opened = nil
	l.is, l.fd, l.from = fd >= 0, fd, time.Now().Add(idleLong)
	return l.is, false
}

// close closes the socket. When the Group ends, the caller waits for w.exact.reads before it calls close.
func (l *socketList) close() {
	if l.opened != nil {
		if fd, done := await(l.opened, 0); done {
			l.is, l.fd = fd >= 0, fd
		}
		l.opened = nil
	}
	if l.is {
		_ = unix.Close(l.fd)
		l.is = false
	}
}

// Numbers of linux/sock_diag.h and linux/unix_diag.h.
const (
	diagByFamily   = 20 // SOCK_DIAG_BY_FAMILY
	diagShowMemory = 32 // UDIAG_SHOW_MEMINFO
	diagMemory     = 5  // UNIX_DIAG_MEMINFO
	diagSent       = 2  // SK_MEMINFO_WMEM_ALLOC
	diagHead       = 16 // size of struct unix_diag_msg
	mostListed     = 1 << 20
)

// read returns the memory of the messages that the Unix sockets have sent and that wait to be read, and how many sockets
// there are. The kernel charges all memory of a message to its sender.
func (l *socketList) read() (queued int64, sockets int, err error) {
	if err = l.ask(^uint32(0)); err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 32<<10)
	for sockets < mostListed {
		n, _, err := unix.Recvfrom(l.fd, buf, unix.MSG_DONTWAIT) // no waiting: the kernel makes the first packet in ask, and the next one in each read
		if err != nil {
			return 0, 0, err
		}
		sum, found, done, err := queuedIn(buf[:n])
		queued, sockets = queued+sum, sockets+found
		if done || err != nil {
			return queued, sockets, err
		}
	}
	return queued, sockets, nil
}

// ask requests a list of the Unix sockets in the given states, a bit each.
func (l *socketList) ask(states uint32) error {
	ne := binary.NativeEndian
	m := ne.AppendUint32(nil, 40) // struct nlmsghdr, struct unix_diag_req
	m = ne.AppendUint16(m, diagByFamily)
	m = ne.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	m = append(m, make([]byte, 8)...)
	m = append(m, unix.AF_UNIX, 0, 0, 0)
	m = ne.AppendUint32(m, states)
	m = ne.AppendUint32(m, 0)
	m = ne.AppendUint32(m, diagShowMemory)
	m = append(m, make([]byte, 8)...)
	return unix.Sendto(l.fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// queuedIn returns the numbers of read for one packet of the list. done reports whether the list ends with it.
func queuedIn(packet []byte) (queued int64, sockets int, done bool, err error) {
	const head = unix.SizeofNlMsghdr
	ne := binary.NativeEndian
	for len(packet) >= head {
		size := int(ne.Uint32(packet))
		if size < head || size > len(packet) {
			return queued, sockets, true, errors.New("a message of a wrong size")
		}
		message := packet[head:size]
		switch ne.Uint16(packet[4:]) {
		case unix.NLMSG_DONE:
			return queued, sockets, true, nil
		case unix.NLMSG_ERROR:
			if len(message) < 4 {
				return queued, sockets, true, unix.EIO
			}
			return queued, sockets, true, unix.Errno(-int32(ne.Uint32(message)))
		case diagByFamily:
			sockets++
			queued += sentBy(message)
		}
		packet = packet[min((size+3)&^3, len(packet)):]
	}
	return queued, sockets, false, nil
}

// sentBy returns the memory of the messages that a socket has sent, from its entry in the list.
func sentBy(message []byte) int64 {
	ne := binary.NativeEndian
	for rest := message[min(diagHead, len(message)):]; len(rest) >= 4; {
		size := int(ne.Uint16(rest))
		if size < 4 || size > len(rest) {
			return 0
		}
		if ne.Uint16(rest[2:]) == diagMemory && size >= 4+4*(diagSent+1) {
			return int64(ne.Uint32(rest[4+4*diagSent:]))
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return 0
}

// ListsSockets reports whether the kernel lists Unix sockets with the memory of their messages.
var ListsSockets = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return false
	}
	l := socketList{is: true, fd: fd}
	defer l.close()
	if l.ask(0) != nil {
		return false
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(l.fd, buf, unix.MSG_DONTWAIT)
	if err != nil {
		return false
	}
	_, _, done, err := queuedIn(buf[:n])
	return done && err == nil
})

// mostOfSender is the most memory that the messages of one sender take: as much as its send buffer allows, and one more
// message of the same size.
var mostOfSender = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/sys/net/core/wmem_default")
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return 2 * max(n, 208<<10)
})
