package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
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
	raw  []byte // the records that were read
}

var errStop = errors.New("that is enough")

// readHello reads a ClientHello with the parser of crypto/tls and stops it before it
// answers. It reads no further than the last record of the ClientHello. If that record
// contains more than the ClientHello, readHello fails. The caller sets the read deadline.
// On error hello.raw holds the bytes read.
func readHello(ctx context.Context, r io.Reader) (hello, error) {
	var h hello
	var seen bytes.Buffer
	server := tls.Server(silent{r: io.TeeReader(&records{r: io.LimitReader(r, helloBytes)}, &seen)}, &tls.Config{ //nolint:gosec // no handshake takes place here: program and host agree on a version
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			h.name = info.ServerName
			h.ech = slices.ContainsFunc(info.Extensions, func(x uint16) bool { return slices.Contains(hiding, x) })
			return nil, errStop
		},
	})
	err := server.HandshakeContext(ctx)
	h.raw = seen.Bytes()
	if !errors.Is(err, errStop) {
		return hello{raw: h.raw}, fmt.Errorf("read ClientHello: %w", err)
	}
	if !isOneMessage(h.raw) {
		return hello{raw: h.raw}, errors.New("read ClientHello: more follows in its record")
	}
	return h, nil
}

// isOneMessage reports whether the records contain one handshake message and nothing else.
func isOneMessage(raw []byte) bool {
	const head = 4 // type, and length in three bytes
	var message []byte
	for len(raw) >= recordHead {
		end := min(recordHead+int(binary.BigEndian.Uint16(raw[3:])), len(raw))
		message = append(message, raw[recordHead:end]...)
		raw = raw[end:]
	}
	return len(message) >= head && len(message) == head+(int(message[1])<<16|int(message[2])<<8|int(message[3]))
}

// records reads TLS records. No read goes beyond the end of a record.
type records struct {
	r    io.Reader
	head []byte // bytes of the record header that were read
	left int    // bytes of the record that were not read; 0 while the head is read
}

func (r *records) Read(p []byte) (int, error) {
	if r.left > 0 {
		n, err := r.r.Read(p[:min(len(p), r.left)])
		r.left -= n
		return n, err
	}
	n, err := r.r.Read(p[:min(len(p), recordHead-len(r.head))])
	if r.head = append(r.head, p[:n]...); len(r.head) == recordHead {
		r.left, r.head = int(binary.BigEndian.Uint16(r.head[3:])), r.head[:0]
	}
	return n, err
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
