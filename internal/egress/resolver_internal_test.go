package egress

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// maxDatagram is the largest answer that a NameServer sends by UDP. A client asks for a larger one by TCP.
const maxDatagram = 1232

// NameServer is a DNS server outside of the sandbox, for tests. Each question for a name takes the next of
// its lists of addresses; the last one stays.
type NameServer struct {
	udp   *net.UDPConn
	tcp   net.Listener
	mu    sync.Mutex
	table map[string][][]string
	heard []string
}

// NewNameServer starts a server on a port of 127.0.0.1, by UDP and TCP. It ends with the test.
func NewNameServer(t testing.TB, table map[string][][]string) *NameServer {
	t.Helper()
	r := &NameServer{table: table}
	r.listen(t)
	var serving sync.WaitGroup
	serving.Go(r.serveUDP)
	serving.Go(r.serveTCP)
	t.Cleanup(func() {
		_, _ = r.udp.Close(), r.tcp.Close()
		serving.Wait()
	})
	return r
}

// listen listens on a port that is free for both protocols. A port that is free for one can be taken for the other.
func (r *NameServer) listen(t testing.TB) {
	t.Helper()
	var last error
	for range 20 {
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if r.tcp, err = net.Listen("tcp", u.LocalAddr().String()); err == nil {
			r.udp = u
			return
		}
		_, last = u.Close(), err
	}
	t.Fatal(last)
}

func (r *NameServer) serveUDP() {
	buf := make([]byte, 1500)
	for {
		n, from, err := r.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		if out := r.answer(buf[:n], maxDatagram); out != nil {
			_, _ = r.udp.WriteTo(out, from)
		}
	}
}

func (r *NameServer) serveTCP() {
	for {
		c, err := r.tcp.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var head [2]byte
			_, _ = io.ReadFull(c, head[:])
			question := make([]byte, binary.BigEndian.Uint16(head[:]))
			_, _ = io.ReadFull(c, question)
			out := r.answer(question, 1<<16-1)
			_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
		}()
	}
}

// At returns the address of the server.
func (r *NameServer) At() netip.AddrPort { return r.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

// Names returns the names that the server was asked for.
func (r *NameServer) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

// answer answers a question. If the answer has more than most bytes, it tells the client to ask by TCP.
func (r *NameServer) answer(msg []byte, most int) []byte {
	var m dnsmessage.Message
	if m.Unpack(msg) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, name)
	all := r.table[name]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if len(all) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	} else {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}
		for _, s := range all[0] {
			a := netip.MustParseAddr(s)
			switch {
			case q.Type == dnsmessage.TypeA && a.Is4():
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
			case q.Type == dnsmessage.TypeAAAA && a.Is6():
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
		if len(all) > 1 && q.Type == dnsmessage.TypeA {
			r.table[name] = all[1:]
		}
	}
	out, err := m.Pack()
	if err == nil && len(out) > most {
		m.Truncated, m.Answers = true, nil
		out, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return out
}
