package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// helloBytes bounds the size of a ClientHello. With the largest key shares and tickets
// of today it has a few thousand bytes.
const helloBytes = 32 << 10

// hiding are the extensions that encrypt the real server name: Encrypted Client Hello
// and its predecessor, the draft ESNI.
var hiding = []uint16{0xfe0d, 0xffce}

// hello is a parsed ClientHello.
type hello struct {
	name string // server name as sent; empty: none
	ech  bool   // the real server name is encrypted
	raw  []byte // all bytes read: the ClientHello and perhaps more
}

var errStop = errors.New("that is enough")

// readHello reads a ClientHello with the parser of crypto/tls and stops it before it
// answers. The caller sets the read deadline. On error hello.raw holds the bytes read.
func readHello(ctx context.Context, r io.Reader) (hello, error) {
	var h hello
	var seen bytes.Buffer
	server := tls.Server(silent{r: io.TeeReader(io.LimitReader(r, helloBytes), &seen)}, &tls.Config{ //nolint:gosec // no handshake takes place here: program and host agree on a version
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			h.name = info.ServerName
			h.ech = slices.ContainsFunc(info.Extensions, func(x uint16) bool { return slices.Contains(hiding, x) })
			return nil, errStop
		},
	})
	err := server.HandshakeContext(ctx)
	h.raw = seen.Bytes()
	if errors.Is(err, errStop) {
		return h, nil
	}
	return hello{raw: h.raw}, fmt.Errorf("read ClientHello: %w", err)
}

// silent is a net.Conn that reads from r and discards writes.
type silent struct{ r io.Reader }

func (s silent) Read(p []byte) (int, error)       { return s.r.Read(p) }
func (s silent) Write(p []byte) (int, error)      { return len(p), nil }
func (s silent) Close() error                     { return nil }
func (s silent) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s silent) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s silent) SetDeadline(time.Time) error      { return nil }
func (s silent) SetReadDeadline(time.Time) error  { return nil }
func (s silent) SetWriteDeadline(time.Time) error { return nil }

// denied is a TLS record with the fatal alert access_denied.
var denied = []byte{21, 3, 1, 0, 2, 2, 49}
