package egress_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

func portText(p uint16) string { return strconv.Itoa(int(p)) }

// grab returns what a client of TLS says first.
func grab(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	rec := &recorder{}
	_ = tls.Client(rec, c).Handshake() // nobody answers
	if len(rec.said) < 6 {
		t.Fatal("the client said nothing")
	}
	return rec.said
}

type recorder struct {
	net.Conn
	said []byte
}

func (r *recorder) Write(p []byte) (int, error)      { r.said = append(r.said, p...); return len(p), nil }
func (r *recorder) Read([]byte) (int, error)         { return 0, errNothing }
func (r *recorder) Close() error                     { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

// echList is a list of one configuration for Encrypted Client Hello, whose hello
// shows the public name.
func echList(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	body := []byte{7, 0, 0x20}                                   // id, X25519 with HKDF-SHA256
	body = binary.BigEndian.AppendUint16(body, uint16(len(pub))) // the key
	body = append(body, pub...)
	body = append(body, 0, 4, 0, 1, 0, 1) // HKDF-SHA256 with AES-128-GCM
	body = append(body, 32, byte(len(public)))
	body = append(body, public...)
	body = append(body, 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

func helloFor(name string) *tls.Config { return &tls.Config{ServerName: name} }

// mapping is one entry of what SANDBOXMCP_EGRESS_TEST_RESOLVE says.
func mapping(t testing.TB, s string) map[sandboxmcp.Domain]netip.AddrPort {
	t.Helper()
	name, to, _ := strings.Cut(s, "=")
	return map[sandboxmcp.Domain]netip.AddrPort{domain(t, name): netip.MustParseAddrPort(to)}
}

func mustDomains(t testing.TB, all ...string) []sandboxmcp.Domain {
	t.Helper()
	out := make([]sandboxmcp.Domain, 0, len(all))
	for _, s := range all {
		out = append(out, domain(t, s))
	}
	return out
}
