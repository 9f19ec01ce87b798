package jail

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// packet4 and packet6 are headers of IP around a body.
func packet4(protocol byte, from, to string, body ...byte) []byte {
	p := make([]byte, 20)
	p[0], p[9] = 0x45, protocol
	copy(p[12:], netip.MustParseAddr(from).AsSlice())
	copy(p[16:], netip.MustParseAddr(to).AsSlice())
	return append(p, body...)
}

func packet6(protocol byte, from, to string, body ...byte) []byte {
	p := make([]byte, 40)
	p[0], p[6] = 0x60, protocol
	copy(p[8:], netip.MustParseAddr(from).AsSlice())
	copy(p[24:], netip.MustParseAddr(to).AsSlice())
	return append(p, body...)
}

// TestRefusals compares what the filter lets through and what is read of it with
// what it has to be, packet by packet.
func TestRefusals(t *testing.T) {
	tcp := func(seq, flags byte) []byte {
		return append([]byte{0x20, 0xfb, 0x80, 0, 0, 0, 0, seq, 0, 0, 0, 1, 0x50, flags}, make([]byte, 6)...)
	}
	udp := []byte{0x80, 0, 0x01, 0xbb, 0, 8, 0, 0}
	const reset, syn = 0x14, 0x02
	options := packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", append(make([]byte, 4), tcp(0, reset)...)...)
	options[0] = 0x46
	fragment := packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", tcp(0, reset)...)
	fragment[7] = 1
	for name, c := range map[string]struct {
		packet []byte
		want   string // empty: it is not seen, or says nothing
	}{
		"TCP":          {packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", tcp(0, reset)...), "tcp 1.2.3.4:8443"},
		"Options":      {options, "tcp 1.2.3.4:8443"},
		"Fragment":     {fragment, ""},
		"Established":  {packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", tcp(1, reset)...), ""},
		"Connection":   {packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", tcp(0, syn)...), ""},
		"Own":          {packet4(unix.IPPROTO_TCP, "127.0.0.1", "127.0.0.1", tcp(0, reset)...), ""},
		"TCP6":         {packet6(unix.IPPROTO_TCP, "2001:db8::1", "::1", tcp(0, reset)...), ""},
		"Established6": {packet6(unix.IPPROTO_TCP, "2001:db8::1", "::1", tcp(1, reset)...), ""},
		"Own6":         {packet6(unix.IPPROTO_TCP, "::1", "::1", tcp(0, reset)...), ""},
		"UDP6":         {packet6(unix.IPPROTO_ICMPV6, "2001:db8::1", "::1", append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, packet6(unix.IPPROTO_UDP, "::1", "2001:db8::9", udp...)...)...), ""},
		"Asked6":       {packet6(unix.IPPROTO_ICMPV6, "2001:db8::1", "::1", append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, packet6(unix.IPPROTO_UDP, "::1", "2001:db8::9", udp...)...)...), ""},
		"UDP":          {packet4(unix.IPPROTO_ICMP, "9.9.9.9", "9.9.9.9", append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, packet4(unix.IPPROTO_UDP, "9.9.9.9", "9.9.9.9", udp...)...)...), "udp 9.9.9.9:443"},
		"OtherICMP":    {packet4(unix.IPPROTO_ICMP, "9.9.9.9", "9.9.9.9", append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, packet4(unix.IPPROTO_UDP, "9.9.9.9", "9.9.9.9", udp...)...)...), ""},
		"OfTCP":        {packet4(unix.IPPROTO_ICMP, "9.9.9.9", "9.9.9.9", append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, packet4(unix.IPPROTO_TCP, "9.9.9.9", "9.9.9.9", udp...)...)...), ""},
		"Plain":        {packet4(unix.IPPROTO_UDP, "9.9.9.9", "9.9.9.9", udp...), ""},
		"Short":        {packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", 0, 1), ""},
		"Version":      {append([]byte{0x75}, make([]byte, 60)...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if seen(t, c.packet) {
				if r, ok := ParseRefused(c.packet); ok {
					got = "tcp " + r.Address.String()
					if r.UDP {
						got = "udp " + r.Address.String()
					}
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// seen reports whether the filter lets a packet through, by another implementation than the
// kernel's.
func seen(t *testing.T, packet []byte) bool {
	t.Helper()
	code := refusedFilter()
	var raw []bpf.RawInstruction
	for c := range slices.Chunk(code, 8) {
		raw = append(raw, bpf.RawInstruction{Op: uint16(c[0]) | uint16(c[1])<<8, Jt: c[2], Jf: c[3], K: uint32(c[4]) | uint32(c[5])<<8 | uint32(c[6])<<16 | uint32(c[7])<<24})
	}
	ins, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter: got an instruction that is unknown, want none")
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(packet)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// FuzzParseRefused: ParseRefused reads nothing outside of the packet, and returns no address
// of the sandbox's own.
func FuzzParseRefused(f *testing.F) {
	f.Add(packet4(unix.IPPROTO_TCP, "1.2.3.4", "1.2.3.4", make([]byte, 20)...))
	f.Add(packet6(unix.IPPROTO_ICMPV6, "2001:db8::1", "::1", append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, packet6(unix.IPPROTO_UDP, "::1", "::2", make([]byte, 8)...)...)...))
	f.Fuzz(func(t *testing.T, p []byte) {
		if r, ok := ParseRefused(p); ok && (!r.Address.IsValid() || r.Address.Addr().IsLoopback()) {
			t.Errorf("%x: got %v, want no address, or one outside of loopback", p, r)
		}
	})
}
