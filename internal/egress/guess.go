package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"sync"
	"time"
)

// firstWord is how long the proxy waits for a program's first byte before it dials. A
// protocol in which the host speaks first sends none.
const firstWord = 200 * time.Millisecond

// firstLine bounds the bytes that are inspected to recognize HTTP.
const firstLine = 4 << 10

// murky is the reason for refusing a first line that is too long to tell whether it
// begins an HTTP request.
const murky = "what was sent begins as a line that does not end"

type tongue int

const (
	silence tongue = iota // the program has closed its side and sent nothing
	speaksTLS
	speaksHTTP
	speaksOther
	speaksMurky // the first line is too long
)

// guess serves a named port other than 80 and 443, where any protocol may be used. TLS
// and HTTP get the same checks as at their own ports. Anything else is copied
// unchanged, if the host is known.
func (v *visit) guess() {
	_ = v.c.SetReadDeadline(time.Now().Add(firstWord))
	if _, err := v.br.Peek(1); err != nil && isTimeout(err) {
		v.raw(true)
		return
	}
	v.headDeadline() // the rest of the first line may come later
	v.answerTongue(v.listen())
}

// answerTongue serves a program that has spoken first, by the protocol that it uses.
func (v *visit) answerTongue(said tongue) {
	switch said {
	case speaksTLS:
		v.tls()
	case speaksHTTP:
		v.http()
	case speaksOther, silence:
		v.raw(false)
	case speaksMurky:
		v.deny(ViaTCP, murky)
		reset(v.c)
	}
}

// requestLine matches every line that some server accepts as a request line. Several
// servers accept any white space between its parts and in front of it, any byte in its
// target, and a lone CR as its end.
var requestLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[\s\v]*[^\s\v]+[\s\v](?s:.*)HTTP/\d(\.\d)?([ \t\v\f]*\r|[\s\v]*$)`)
})

// shortestMethod is the length of the shortest methods of HTTP, such as GET.
const shortestMethod = 3

// listen recognizes the protocol by the program's first bytes. It does not consume them.
func (v *visit) listen() tongue {
	word := 0 // length of the first word; -1: it is no method of HTTP
	method := false
	for n := 1; ; n++ {
		b, err := v.br.Peek(n)
		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return silence
		case errors.Is(err, io.EOF):
			return speaksOther
		case err != nil || n >= firstLine:
			return speaksMurky
		}
		if recordCipherSpec <= b[0] && b[0] <= recordHeartbeat {
			switch { // servers skip some records before the ClientHello, of any version that begins with a small number
			case b[0] == recordHandshake, n > 1 && b[1] < 0x10:
				return speaksTLS
			case n > 1:
				return speaksOther
			}
			continue
		}
		switch c := b[n-1]; {
		case c == '\n':
			line := bytes.TrimLeft(b, " \t\v\f\r\n") // some readers skip empty lines before a request
			if len(line) == 0 {
				continue
			}
			if requestLine().Match(bytes.TrimRight(line, "\r\n")) {
				return speaksHTTP
			}
			return speaksOther
		case method: // some servers take any byte in the target
		case c == ' ', c >= '\t' && c <= '\r':
			if method = word >= shortestMethod; word > 0 && !method {
				word = -1
			}
		case c < ' ', c >= 0x7f:
			return speaksOther
		case word >= 0 && token(string(c)):
			word++
		default:
			word = -1
		}
	}
}

// raw copies bytes unchanged. silent says that the program has sent nothing yet; its
// first bytes are then inspected when they arrive.
func (v *visit) raw(silent bool) {
	if v.host == "" {
		v.deny(ViaTCP, "no name stands for this address, and none was said")
		reset(v.c)
		return
	}
	up := v.open(ViaTCP)
	if up == nil {
		reset(v.c)
		return
	}
	defer v.l.untrack(up)
	if !silent {
		v.relay(up)
		return
	}
	banner := v.await(up)
	if len(banner) == 0 && v.up != nil { // the program spoke first after all
		v.headDeadline()
		v.answerTongue(v.listen())
		return
	}
	v.relayAfter(up, banner, func(f *flow) error {
		v.in.allow(v.l.proxy.caps.Idle)
		switch v.listen() {
		case speaksTLS:
			if len(banner) == 0 { // the host has shut its side, or the time was over
				v.deny(ViaTLS, "TLS was spoken too late")
				return errLate // a second ClientHello would not be checked
			}
			first, ok := v.hello()
			if !ok {
				return errLate
			}
			f.count(int64(len(first)))
			_, err := up.Write(first)
			return err
		case speaksHTTP:
			v.deny(ViaHTTP, "HTTP was spoken after the host had spoken")
			return errLate
		case speaksMurky:
			v.deny(ViaTCP, murky)
			return errLate
		case silence, speaksOther:
			return nil
		}
		return nil
	})
}

// await waits until one side sends data. If the host does, await returns that data. If
// the program does, await sets v.up, so that the connection is served like a new one
// whose host is dialled already.
func (v *visit) await(up net.Conn) (banner []byte) {
	heard := make(chan []byte, 1)
	_ = up.SetReadDeadline(time.Now().Add(v.l.proxy.caps.Idle))
	v.in.allow(0)
	_ = v.c.SetReadDeadline(time.Now().Add(v.l.proxy.caps.Idle))
	go func() {
		b := make([]byte, 4<<10)
		n, err := up.Read(b)
		if n > 0 || !isTimeout(err) {
			_ = v.c.SetReadDeadline(time.Unix(1, 0)) // ends the Peek below
		}
		heard <- b[:n]
	}()
	_, err := v.br.Peek(1)
	_ = up.SetReadDeadline(time.Unix(1, 0))
	banner = <-heard
	_ = up.SetReadDeadline(time.Time{})
	_ = v.c.SetReadDeadline(time.Time{})
	if len(banner) == 0 && err == nil {
		v.up = up
	}
	return banner
}

var errLate = errors.New("refused after it was opened")
