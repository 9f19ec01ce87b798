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

// helloBytes bounds what is read for a ClientHello. One with the key shares of
// today's largest algorithms and tickets has a few thousand.
const helloBytes = 32 << 10

// hiding are the extensions behind which another name than the one that is to be
// seen may be meant: Encrypted Client Hello, and the draft before it.
var hiding = []uint16{0xfe0d, 0xffce}

// hello is a ClientHello as far as it matters here.
type hello struct {
	name string // server name as it was sent; empty: none
	ech  bool
	raw  []byte // everything that was read: the hello and perhaps more
}

var errStop = errors.New("that is enough")

// readHello reads a ClientHello with the parser of crypto/tls, which is stopped
// before it would answer. It reads what it needs in the pieces in which it
// comes; who calls sets the deadline.
func readHello(ctx context.Context, r io.Reader) (hello, error) {
	var h hello
	var seen bytes.Buffer
	server := tls.Server(silent{r: io.TeeReader(io.LimitReader(r, helloBytes), &seen)}, &tls.Config{ //nolint:gosec // nothing is spoken here: the version is the two ends' affair
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

// silent is a connection that can be read and says nothing.
type silent struct{ r io.Reader }

func (s silent) Read(p []byte) (int, error)       { return s.r.Read(p) }
func (s silent) Write(p []byte) (int, error)      { return len(p), nil }
func (s silent) Close() error                     { return nil }
func (s silent) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s silent) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s silent) SetDeadline(time.Time) error      { return nil }
func (s silent) SetReadDeadline(time.Time) error  { return nil }
func (s silent) SetWriteDeadline(time.Time) error { return nil }

// denied is the TLS alert access_denied, fatal, in a record of its own.
var denied = []byte{21, 3, 1, 0, 2, 2, 49}
