package egress

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Types of TLS records.
const (
	recordCipherSpec  = 20
	recordAlert       = 21
	recordHandshake   = 22
	recordApplication = 23
	recordHeartbeat   = 24
)

const (
	recordHead  = 5
	serverHello = 2     // type of the handshake message
	randomAt    = 4 + 2 // offset of the random value in a ServerHello
	warning     = 1     // level of an alert after which the handshake goes on
)

// retryRequest is the random value of a ServerHello that asks for a second ClientHello
// (RFC 8446, 4.1.3).
var retryRequest = sha256.Sum256([]byte("HelloRetryRequest"))

// greet sends the ClientHello to the host and passes on the beginning of the answer. If
// the host asks for a second ClientHello, the second one is checked like the first,
// because servers use its server name. Until the host has answered, nothing else that the
// program has sent reaches it. If greet returns false, the connection is refused or has ended.
func (v *visit) greet(up net.Conn, first []byte) bool {
	f := v.l.newFlow()
	f.count(int64(len(first)))
	if _, err := up.Write(first); err != nil {
		return false
	}
	_ = up.SetReadDeadline(time.Now().Add(f.idle))
	stop := v.watch(func() { _ = up.SetReadDeadline(time.Unix(1, 0)) }, true)
	answer, retry, err := readServerHello(up)
	stop()
	f.count(int64(len(answer)))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	_ = up.SetReadDeadline(time.Time{})
	if _, err = v.c.Write(answer); err != nil {
		return false
	}
	return !retry || v.greetAgain(f, up)
}

// greetAgain checks the program's second ClientHello and sends it. It passes on records that
// come before it unchanged: change_cipher_spec, alerts, and early data, which the host skips.
func (v *visit) greetAgain(f *flow, up net.Conn) bool {
	v.headDeadline()
	for {
		head, err := v.br.Peek(recordHead)
		if err != nil {
			return false
		}
		switch head[0] {
		case recordHandshake:
			second, ok := v.hello()
			if !ok {
				return false
			}
			f.count(int64(len(second)))
			_, err = up.Write(second)
			return err == nil
		case recordCipherSpec, recordAlert, recordApplication:
			n := recordHead + int64(binary.BigEndian.Uint16(head[3:]))
			if _, err = io.CopyN(up, f.reader(v.br), n); err != nil {
				if errors.Is(err, errBytes) {
					v.deny(ViaTCP, errBytes.Error())
				}
				return false
			}
		default:
			v.deny(ViaTLS, "what was sent is not TLS")
			return false
		}
	}
}

// readServerHello reads a ServerHello, and reports whether it asks for a second
// ClientHello. If anything else comes, it returns what it has read.
func readServerHello(r io.Reader) (raw []byte, retry bool, err error) {
	var message []byte
	for len(message) < randomAt+len(retryRequest) {
		start := len(raw)
		raw = append(raw, make([]byte, recordHead)...)
		if n, err := io.ReadFull(r, raw[start:]); err != nil {
			return raw[:start+n], false, err
		}
		kind, size := raw[start], int(binary.BigEndian.Uint16(raw[start+3:]))
		if kind != recordHandshake && kind != recordAlert || size == 0 || len(raw)+size > helloBytes {
			return raw, false, nil
		}
		start = len(raw)
		raw = append(raw, make([]byte, size)...)
		if n, err := io.ReadFull(r, raw[start:]); err != nil {
			return raw[:start+n], false, err
		}
		if kind == recordAlert {
			if raw[start] != warning {
				return raw, false, nil
			}
			continue
		}
		if message = append(message, raw[start:]...); message[0] != serverHello {
			return raw, false, nil
		}
	}
	return raw, bytes.Equal(message[randomAt:randomAt+len(retryRequest)], retryRequest[:]), nil
}
