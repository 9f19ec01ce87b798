package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

const (
	dnsTTL     = 5    // seconds; short, because the open domains may change
	dnsMessage = 4096 // most bytes of a question
	dnsRecords = 4    // most records beside the question; EDNS and a signature have one each
)

// noQuestion is the reason for refusing a message that is not one question.
const noQuestion = "it is not one question"

// answer returns the answer to a DNS message, or nil if the message gets none. It asks
// no other resolver. An open name has the address that represents it, localhost has a
// loopback address, and no other name exists.
func (l *Link) answer(msg []byte) []byte {
	defer l.survive()
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return nil
	}
	out := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	odd := func() { l.ledger.deny(Entry{Host: "dns", Port: 53, Via: ViaDNS, Reason: noQuestion}) }
	if h.OpCode != 0 {
		odd()
		return packed(out, dnsmessage.RCodeNotImplemented, nil, nil, false)
	}
	all, err := oneQuestion(&p, msg)
	if err != nil {
		odd()
		return packed(out, dnsmessage.RCodeFormatError, nil, nil, false)
	}
	q := all[0]
	edns := extended(&p)
	if q.Class != dnsmessage.ClassINET || q.Type == dnsmessage.TypeAXFR || q.Type == 251 { // 251: IXFR
		l.ledger.denyOnce(Entry{Host: asked(q.Name), Via: ViaDNS, Reason: "this kind of question is refused"}, true) // a name that is not open says so
		return packed(out, dnsmessage.RCodeRefused, &q, nil, edns)
	}
	code, a := l.lookup(q)
	return packed(out, code, &q, a, edns)
}

var errNoQuestion = errors.New("not one question")

// oneQuestion returns the only question of a message, as a list of one. It looks at the counts in the header first,
// because the parser reads as many entries as they say: 65 KB of entries that point to one long name took 30 ms of CPU
// time and 10 MB.
func oneQuestion(p *dnsmessage.Parser, msg []byte) ([]dnsmessage.Question, error) {
	count := func(at int) int { return int(binary.BigEndian.Uint16(msg[at:])) }
	if len(msg) > dnsMessage || count(4) != 1 || count(6)+count(8)+count(10) > dnsRecords {
		return nil, errNoQuestion
	}
	return p.AllQuestions()
}

// lookup answers a question. RCodeSuccess without an address means that the name exists
// but has no record of the requested type.
func (l *Link) lookup(q dnsmessage.Question) (dnsmessage.RCode, dnsmessage.ResourceBody) {
	text := q.Name.String()
	h, err := sandboxmcp.ParseHost(text)
	if h == "localhost" || strings.HasSuffix(string(h), ".localhost") {
		switch q.Type {
		case dnsmessage.TypeA:
			return dnsmessage.RCodeSuccess, &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}
		case dnsmessage.TypeAAAA:
			return dnsmessage.RCodeSuccess, &dnsmessage.AAAAResource{AAAA: netip.IPv6Loopback().As16()}
		default:
			return dnsmessage.RCodeSuccess, nil
		}
	}
	verdict := Verdict{Reason: "it is no host name"}
	if err == nil {
		verdict = closedIfUnsaid(l.policy.Name(h))
	}
	if !verdict.Allowed {
		if !isReverse(text) { // libraries make these without the program's wish
			l.ledger.denyOnce(Entry{Host: asked(q.Name), Via: ViaDNS, Rule: verdict.Rule, Reason: verdict.Reason, Denial: verdict.Denial}, q.Type == dnsmessage.TypeAAAA)
		}
		return dnsmessage.RCodeNameError, nil
	}
	if q.Type != dnsmessage.TypeA {
		return dnsmessage.RCodeSuccess, nil
	}
	a, ok := l.names.address(h)
	if !ok {
		l.ledger.deny(Entry{Host: string(h), Via: ViaDNS, Reason: "too many names were asked for"})
		return dnsmessage.RCodeServerFailure, nil
	}
	return dnsmessage.RCodeSuccess, &dnsmessage.AResource{A: a.As4()}
}

// asked returns the name of a question for a report.
func asked(n dnsmessage.Name) string {
	if h, err := sandboxmcp.ParseHost(n.String()); err == nil {
		return string(h)
	}
	return n.String()
}

// isReverse reports whether a name is that of a reverse lookup.
func isReverse(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".in-addr.arpa.") || strings.HasSuffix(name, ".ip6.arpa.")
}

// extended reports whether the message has an OPT record (EDNS), so that the answer
// needs one, too.
func extended(p *dnsmessage.Parser) bool {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return false
		}
		if h.Type == dnsmessage.TypeOPT {
			return true
		}
		if p.SkipAdditional() != nil {
			return false
		}
	}
}

func packed(h dnsmessage.Header, code dnsmessage.RCode, q *dnsmessage.Question, a dnsmessage.ResourceBody, edns bool) []byte {
	h.RCode = code
	m := dnsmessage.Message{Header: h}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if a != nil {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL}, Body: a}}
	}
	if edns {
		var opt dnsmessage.ResourceHeader
		if opt.SetEDNS0(dnsMessage, code, false) == nil {
			m.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
		}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// serveUDP answers questions until the socket is closed.
func (l *Link) serveUDP(c net.PacketConn) {
	buf := make([]byte, dnsMessage)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			if l.stopped(err) {
				return
			}
			continue
		}
		l.effort.Pace(backend.CostQuestion) // delays the answer, and with it the next question
		if !l.questions.take(l.proxy.now()) {
			l.ledger.deny(Entry{Host: "dns", Port: 53, Via: ViaDNS, Reason: "too many questions a second"})
			continue
		}
		if out := l.answer(buf[:n]); out != nil {
			_, _ = c.WriteTo(out, from) // if the answer is lost, the program asks again
		}
	}
}

// serveDNS answers DNS questions over TCP, each with a length prefix.
func (l *Link) serveDNS(c net.Conn) {
	var head [2]byte
	for {
		in := &patient{Conn: c, effort: l.effort}
		_ = c.SetDeadline(time.Now().Add(l.proxy.caps.Head))
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint16(head[:]))
		if size > dnsMessage {
			l.ledger.deny(Entry{Host: "dns", Port: 53, Via: ViaDNS, Reason: noQuestion})
			return
		}
		msg := make([]byte, size)
		if _, err := io.ReadFull(in, msg); err != nil {
			return
		}
		l.effort.Pace(backend.CostQuestion)
		if !l.questions.take(l.proxy.now()) {
			l.ledger.deny(Entry{Host: "dns", Port: 53, Via: ViaDNS, Reason: "too many questions a second"})
			return
		}
		out := l.answer(msg)
		if out == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}

// stopped reports whether an error means that the socket or the link is closed. For any
// other error it waits 20 ms first, because a lack of memory or descriptors may pass.
func (l *Link) stopped(err error) bool {
	if errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
		return true
	}
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-l.ctx.Done():
		return true
	case <-t.C:
		return false
	}
}
