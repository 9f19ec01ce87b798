package jail

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	mostRefusals = 64   // destinations between two calls of Take
	mostPackets  = 4096 // that are read at once: a program can make them as fast as they are read
)

// Refusals reads the connections that the kernel of a sandbox has refused. They stay in a
// socket's buffer until Take, so that a flood of them costs the server nothing. Its methods
// may be called concurrently. A nil Refusals can be closed.
type Refusals struct {
	mu    sync.Mutex
	fd    int // -1: closed
	order []Refused
	count map[Refused]int
	lost  int
}

// Refusal is a destination and how often it was refused.
type Refusal struct {
	Refused
	Count int
}

// NewRefusals takes ownership of a socket that Slot.Sockets has made with Refusals. The
// caller closes the result.
func NewRefusals(fd int) *Refusals { return &Refusals{fd: fd, count: map[Refused]int{}} }

// Take returns each refusal once, and how many more there were.
func (r *Refusals) Take() (list []Refusal, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readLocked()
	for _, to := range r.order {
		list = append(list, Refusal{to, r.count[to]})
	}
	lost, r.lost, r.order = r.lost, 0, nil
	clear(r.count)
	return list, lost
}

// readLocked takes what lies in the socket.
func (r *Refusals) readLocked() {
	if r.fd < 0 {
		return
	}
	var b [256]byte
	for range mostPackets {
		n, _, err := unix.Recvfrom(r.fd, b[:], unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			break
		}
		to, ok := ParseRefused(b[:n])
		switch {
		case !ok:
		case r.count[to] > 0:
			r.count[to]++
		case len(r.order) < mostRefusals:
			r.order = append(r.order, to)
			r.count[to] = 1
		default:
			r.lost++
		}
	}
	if st, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil { // since the last time
		r.lost += int(st.Drops)
	}
}

// Close reads what there is for the last time, and closes the socket. It may be called more
// than once.
func (r *Refusals) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readLocked()
	if r.fd >= 0 {
		go func(fd int) { _ = unix.Close(fd) }(r.fd) // the kernel waits for all its processors in it
		r.fd = -1
	}
}
