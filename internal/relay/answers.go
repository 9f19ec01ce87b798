package relay

import (
	"encoding/binary"
	"errors"
	"net"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

const (
	optFilter = 26 // SO_ATTACH_FILTER
	loopback  = 1  // number of its interface
)

// fromOthers is a filter of packets (struct sock_filter) that drops what comes over loopback.
func fromOthers() []byte {
	var b []byte
	for _, i := range []struct {
		code     uint16
		yes, no  uint8
		constant uint32
	}{
		{0x20, 0, 0, 0xfffff008}, // load the number of the interface (SKF_AD_IFINDEX)
		{0x15, 0, 1, loopback},
		{0x06, 0, 0, 0}, // drop it
		{0x06, 0, 0, 0xffffffff},
	} {
		b = binary.LittleEndian.AppendUint16(b, i.code)
		b = append(b, i.yes, i.no)
		b = binary.LittleEndian.AppendUint32(b, i.constant)
	}
	return b
}

// answerNeighbors makes a socket that connections of other machines reach if no policy holds the network: other sandboxes try
// it. What comes over loopback is dropped, also if a program connects to the container's own address, so that no program can fill
// the socket's queue to look closed. Some kernels refuse the filter.
func (s *Sandbox) answerNeighbors() error {
	if !s.cfg.Answers.IsValid() {
		return nil
	}
	l := s.c.list()
	code := l.bytes(fromOthers())
	filter := l.bytes(words(4, 0, 0, 0))
	fd := l.do("socket", num(inet), num(stream|sockFlags), num(0))
	l.store(arg{tagBytes, filter.v + 8}, code)
	l.try("setsockopt", result(fd), num(optSocket), num(optFilter), filter, num(16))
	l.do("setsockopt", result(fd), num(optSocket), num(optReuse), l.bytes(words(1)), num(4)) // a server has just connected there
	l.do("bind", result(fd), l.bytes(sockaddr(s.cfg.Answers.Addr().As4(), int(s.cfg.Answers.Port()))), num(16))
	l.do("listen", result(fd), num(backlog))
	r, err := s.c.run(l)
	own, none := r.value(fd)
	if err != nil {
		if none == nil {
			s.c.drop(own)
			return nil // another has the port
		}
		return err
	}
	in := &listener{c: s.c, fd: own, port: int(s.cfg.Answers.Port()), limit: newDeadline()}
	go func() {
		for {
			c, err := in.Accept()
			if errors.Is(err, net.ErrClosed) {
				return // with the sandbox
			}
			if err == nil {
				_ = c.Close()
			}
			s.effort.Pace(backend.CostRefusal) // after a failure too, such as a lack of descriptors, which passes
		}
	}()
	return nil
}
