package process

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

const (
	mostRefusals = 64   // destinations between two times that somebody asks
	mostPackets  = 4096 // that are read at once: a program can make them as fast as they are read
)

// refusals are what a sandbox's kernel has refused. They lie in a socket's buffer
// until somebody asks, so that a flood of them costs the server nothing. A nil one
// has none.
type refusals struct {
	mu    sync.Mutex
	fd    int // -1: closed
	order []jail.Refused
	count map[jail.Refused]int
	lost  int
}

func newRefusals(fd int) *refusals { return &refusals{fd: fd, count: map[jail.Refused]int{}} }

// take gives out what there is, once.
func (r *refusals) take() (list []backend.Refusal, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readLocked()
	for _, to := range r.order {
		network := "tcp"
		if to.UDP {
			network = "udp"
		}
		list = append(list, backend.Refusal{Network: network, Address: to.Address, Count: r.count[to]})
	}
	lost, r.lost, r.order = r.lost, 0, nil
	clear(r.count)
	return list, lost
}

// readLocked takes what lies in the socket.
func (r *refusals) readLocked() {
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
		to, ok := jail.ParseRefused(b[:n])
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

// close reads what there is for the last time.
func (r *refusals) close() {
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
