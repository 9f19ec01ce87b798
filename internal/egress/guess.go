package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"time"
)

// firstWord is how long a program may be silent before the other side is thought
// to speak first.
const firstWord = 200 * time.Millisecond

// firstLine bounds what is looked at to tell HTTP from something else.
const firstLine = 4 << 10

// murky is said of text that might become the head of a request.
const murky = "what was sent begins as a line that does not end"

type tongue int

const (
	silence tongue = iota // nothing, and nothing will be
	speaksTLS
	speaksHTTP
	speaksOther
	speaksMurky // a line that does not end
)

// guess serves a named port that is neither 80 nor 443, where anything may be
// spoken. TLS and HTTP are held to what holds at their own ports. The rest is
// copied as it is, if the host is known.
func (v *visit) guess() {
	_ = v.c.SetReadDeadline(time.Now().Add(firstWord))
	if _, err := v.br.Peek(1); err != nil && isTimeout(err) {
		v.raw(true)
		return
	}
	v.answerTongue(v.listen())
}

// answerTongue goes on with a program that speaks first.
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

// requestLine finds what some server takes for a request line: several take any white space
// between its parts, and in front of it.
var requestLine = regexp.MustCompile(`^[\s\v]*[^\s\v]+[\s\v].*HTTP/\d(\.\d)?[\s\v]*$`)

// listen tells by the first bytes what is spoken. They stay to be read.
func (v *visit) listen() tongue {
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
		if b[0] == 0x16 {
			return speaksTLS
		}
		switch c := b[n-1]; {
		case c == '\n':
			line := bytes.TrimLeft(b, "\r\n") // some readers skip empty lines before a request
			if len(line) == 0 {
				continue
			}
			if requestLine.Match(bytes.TrimRight(line, "\r\n")) {
				return speaksHTTP
			}
			return speaksOther
		case c < ' ' && (c < '\t' || c > '\r'), c >= 0x7f:
			return speaksOther
		}
	}
}

// raw copies as it is. When the program has said nothing yet, its first words
// are looked at when they come.
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
		v.relay(up, nil)
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

// await waits until one side speaks, and returns what the host has said. When it
// is the program, the connection goes on as one that has just begun, with up in
// its place.
func (v *visit) await(up net.Conn) (banner []byte) {
	heard := make(chan []byte, 1)
	_ = up.SetReadDeadline(time.Now().Add(v.l.proxy.caps.Idle))
	v.in.allow(0)
	_ = v.c.SetReadDeadline(time.Now().Add(v.l.proxy.caps.Idle))
	go func() {
		b := make([]byte, 4<<10)
		n, err := up.Read(b)
		if n > 0 || !isTimeout(err) {
			_ = v.c.SetReadDeadline(time.Unix(1, 0)) // what goes on here is over
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
