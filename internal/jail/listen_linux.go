package jail

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// AnswerPackets returns a connection for a UDP socket of every address that Slot.Sockets has
// made. It answers from the address that a packet was sent to. WriteTo takes only what
// ReadFrom has returned.
func AnswerPackets(conn *net.UDPConn, v6 bool) net.PacketConn { return &packets{conn, v6} }

// packets is what AnswerPackets returns.
type packets struct {
	conn *net.UDPConn
	v6   bool
}

// asker is who sent a packet, and the address that it was sent to.
type asker struct {
	*net.UDPAddr
	control []byte // has a packet leave from that address
}

// ReadFrom reads one packet.
func (c *packets) ReadFrom(p []byte) (int, net.Addr, error) {
	var oob [64]byte
	n, on, _, from, err := c.conn.ReadMsgUDP(p, oob[:])
	if err != nil {
		return n, nil, err
	}
	return n, &asker{from, c.answer(oob[:on])}, nil
}

// answer makes the control message for the answer to a packet from the control message that came with the
// packet; nil: none came.
func (c *packets) answer(oob []byte) []byte {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range list {
		switch {
		case !c.v6 && m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			info := &unix.Inet4Pktinfo{}
			copy(info.Spec_dst[:], m.Data[4:8]) // the address here that was asked
			return unix.PktInfo4(info)
		case c.v6 && m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := &unix.Inet6Pktinfo{}
			copy(info.Addr[:], m.Data[:16])
			return unix.PktInfo6(info)
		}
	}
	return nil
}

// WriteTo answers whom ReadFrom has named.
func (c *packets) WriteTo(p []byte, to net.Addr) (int, error) {
	a, ok := to.(*asker)
	if !ok || a.control == nil {
		return 0, fmt.Errorf("%v has asked nothing here", to)
	}
	n, _, err := c.conn.WriteMsgUDP(p, a.control, a.UDPAddr)
	return n, err
}

// Close closes it.
func (c *packets) Close() error { return c.conn.Close() }

// LocalAddr is every address.
func (c *packets) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// SetDeadline is as of every connection.
func (c *packets) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// SetReadDeadline is as of every connection.
func (c *packets) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SetWriteDeadline is as of every connection.
func (c *packets) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }

// joined listens on several listeners, one for each family of addresses. Their
// connections are handed on as they are.
type joined struct {
	parts  []net.Listener
	start  sync.Once
	stop   sync.Once
	conns  chan arrival
	closed chan struct{}
	all    sync.WaitGroup
	err    error
}

type arrival struct {
	conn net.Conn
	err  error
}

// Join makes one listener of several. Its Close closes them.
func Join(parts []net.Listener) net.Listener {
	if len(parts) == 1 {
		return parts[0]
	}
	return &joined{parts: parts, conns: make(chan arrival), closed: make(chan struct{})}
}

// Accept waits for the next connection of any.
func (j *joined) Accept() (net.Conn, error) {
	j.start.Do(func() {
		for _, l := range j.parts {
			j.all.Go(func() { j.accept(l) })
		}
	})
	select {
	case a := <-j.conns:
		return a.conn, a.err
	case <-j.closed:
		return nil, net.ErrClosed
	}
}

// accept passes on the connections of one listener until that is closed. It passes on other errors as well, and the
// caller of Accept decides when to call it again.
func (j *joined) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case j.conns <- arrival{c, err}:
		case <-j.closed:
			if c != nil {
				_ = c.Close()
			}
			return
		}
	}
}

// Close closes all, and returns when none accepts any more.
func (j *joined) Close() error {
	j.stop.Do(func() {
		close(j.closed)
		var errs []error
		for _, l := range j.parts {
			errs = append(errs, l.Close())
		}
		j.start.Do(func() {}) // nobody begins now
		j.all.Wait()
		j.err = errors.Join(errs...)
	})
	return j.err
}

// Addr is the first one's.
func (j *joined) Addr() net.Addr { return j.parts[0].Addr() }
