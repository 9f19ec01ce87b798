package egress_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver is a DNS server outside. Each question for a name takes the next of
// its lists of addresses; the last stays.
type resolver struct {
	c     *net.UDPConn
	mu    sync.Mutex
	table map[string][][]string
	heard []string
}

func newResolver(t testing.TB, table map[string][][]string) *resolver {
	t.Helper()
	r := &resolver{c: must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})), table: table}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := r.c.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := r.answer(buf[:n]); out != nil {
				_, _ = r.c.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() { _ = r.c.Close(); <-done })
	return r
}

func (r *resolver) at() netip.AddrPort { return r.c.LocalAddr().(*net.UDPAddr).AddrPort() }

func (r *resolver) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

func (r *resolver) answer(msg []byte) []byte {
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
	if err != nil {
		return nil
	}
	return out
}
