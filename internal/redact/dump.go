package redact

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"strings"
)

// dumps finds secrets in what xxd, hexdump and od print: lines of an offset and the
// bytes by their numbers, so that a value goes across lines at any place. Lines in
// which a part of a form stands are masked whole. It goes through a stream before
// everything else does.
type dumps struct {
	a *automaton

	passing bool   // the rest of a line that is none of a dump
	line    []byte // the beginning of one that may be
	held    []byte // lines of a dump that are not certain yet
	lines   []dumped
	state   uint32
	pos     int64 // bytes of the dump
	told    bool  // a mask was the last that came out
	found   int   // owner of a form that was found; -1: none
}

// dumped is a line of a dump.
type dumped struct {
	length int   // in held
	end    int64 // where its bytes end among those of the dump
	masked bool
}

// maxDumpLine is longer than a line of a dump is.
const maxDumpLine = 256

func (a *automaton) dumps() *dumps { return &dumps{a: a, found: -1} }

// skip returns how many bytes at the beginning of p are surely in no line of a dump,
// and whether a line that ends in them may end with a soft break. It is called when
// nothing is held.
func (d *dumps) skip(p []byte) (n int, soft bool) {
	for at := 0; ; {
		end := bytes.IndexByte(p[at:], '\n') + 1
		if !d.passing && at < len(p) && isHex(p[at]) {
			if end == 0 {
				return at, soft
			}
			if _, is := decodeDump(p[at : at+end]); is {
				return at, soft
			}
		}
		if end == 0 {
			d.passing = d.passing || at < len(p)
			return len(p), soft
		}
		at, d.passing = at+end, false
		soft = soft || endsSoft(p[:at-1])
	}
}

// through takes bytes and returns what is certain, which is p itself or in the
// buffer, and whether a soft break may be in it.
func (d *dumps) through(buffer *[]byte, p []byte) (certain []byte, soft bool) {
	if len(d.lines) > 0 || len(d.line) > 0 {
		*buffer = d.write((*buffer)[:0], p)
		return *buffer, true
	}
	n, soft := d.skip(p)
	if n > 0 {
		d.told = false
	}
	if n == len(p) {
		return p, soft || endsSoft(p)
	}
	*buffer = d.write(append((*buffer)[:0], p[:n]...), p[n:])
	return *buffer, true
}

// write takes bytes and appends to dst what is certain.
func (d *dumps) write(dst, p []byte) []byte {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		part := p
		if end > 0 {
			part = p[:end]
		}
		p = p[len(part):]
		if !d.passing && len(d.line) == 0 && !isHex(part[0]) {
			dst, d.passing = d.flush(dst), true
		}
		if d.passing {
			dst, d.passing = append(dst, part...), end == 0
			d.told = false
			continue
		}
		d.line = append(d.line, part...)
		switch data, is := decodeDump(d.line); {
		case end > 0 && is:
			d.feed(data)
			dst = d.release(dst, d.pos-int64(d.a.depth(d.state)))
		case end > 0 || !mayDump(d.line):
			dst = append(d.flush(dst), d.line...)
			d.passing, d.told = end == 0, false
		default:
			continue
		}
		d.line = d.line[:0]
	}
	return dst
}

// close takes the end, and appends the rest to dst.
func (d *dumps) close(dst []byte) []byte {
	if data, is := decodeDump(d.line); is {
		d.feed(data)
		d.line = d.line[:0]
	}
	dst = append(d.flush(dst), d.line...)
	d.line, d.passing = nil, false
	return dst
}

// feed looks for forms in the bytes of d.line, which is one of a dump.
func (d *dumps) feed(data []byte) {
	d.held = append(d.held, d.line...)
	d.lines = append(d.lines, dumped{length: len(d.line), end: d.pos + int64(len(data))})
	for _, c := range data {
		d.state = d.a.step(d.state, c)
		d.pos++
		if d.state < d.a.sparse {
			continue
		}
		if n := d.a.whole(d.state); n != nil {
			d.found = int(n.owner)
			for i := len(d.lines) - 1; i >= 0; i-- {
				d.lines[i].masked = true
				if i == 0 || d.lines[i-1].end <= d.pos-int64(n.length) {
					break
				}
			}
		}
	}
}

// release appends the lines that end before a place of the dump.
func (d *dumps) release(dst []byte, until int64) []byte {
	done, from := 0, 0
	for _, l := range d.lines {
		if l.end > until {
			break
		}
		text := d.held[from : from+l.length]
		switch {
		case !l.masked:
			dst = append(dst, text...)
		case !d.told:
			dst = append(dst, Mask...)
			if text[len(text)-1] == '\n' {
				dst = append(dst, '\n')
			}
		}
		d.told = l.masked
		from += l.length
		done++
	}
	d.lines = append(d.lines[:0], d.lines[done:]...)
	d.held = append(d.held[:0], d.held[from:]...)
	return dst
}

// flush ends a dump.
func (d *dumps) flush(dst []byte) []byte {
	if len(d.lines) > 0 {
		dst = d.release(dst, d.pos)
	}
	d.state, d.pos, d.told = 0, 0, false
	return dst
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// offset is how many digits the offset has that a line begins with, and what is
// behind it; 0: it begins with none.
func offset(line []byte) (digits int, rest []byte) {
	for digits < len(line) && isHex(line[digits]) {
		digits++
	}
	return digits, line[digits:]
}

// mayDump reports whether an unfinished line may become one of a dump.
func mayDump(line []byte) bool {
	digits, rest := offset(line)
	if len(line) > maxDumpLine || digits > 16 {
		return false
	}
	if len(rest) == 0 {
		return true
	}
	if !dumpOffset(digits, rest) {
		return false
	}
	numbers := bytes.TrimLeft(rest[1:], " ")
	n, behind := offset(numbers)
	if len(behind) == 0 {
		return n <= maxNumber
	}
	_, is := decodeDump(line) // the first number is whole
	return is
}

// dumpOffset reports whether so many digits, and what is behind them, may begin a
// line of a dump.
func dumpOffset(digits int, rest []byte) bool {
	return digits >= 4 && digits <= 16 && len(rest) > 0 && (rest[0] == ':' || rest[0] == ' ')
}

// maxNumber is how many digits of a line of a dump stand together.
const maxNumber = 32

// decodeDump returns the bytes that a line of a dump shows. The numbers are pairs of
// hexadecimal digits, with a blank after each or after several; words of two bytes,
// the second one first, where there is no colon behind the offset; or such words in
// octal.
func decodeDump(line []byte) (data []byte, is bool) {
	digits, rest := offset(line)
	if len(line) > maxDumpLine || !dumpOffset(digits, rest) {
		return nil, false
	}
	text := strings.TrimRight(string(rest), "\r\n")
	colon := text != "" && text[0] == ':'
	if colon { // two blanks end the numbers
		text, _, _ = strings.Cut(strings.TrimPrefix(text[1:], " "), "  ")
	}
	for field := range strings.FieldsSeq(text) {
		switch raw, err := hex.DecodeString(field); {
		case len(field) == 6 && !colon:
			word, bad := strconv.ParseUint(field, 8, 16)
			if bad != nil {
				return data, len(data) > 0
			}
			data = append(data, byte(word), byte(word>>8))
		case err != nil || len(raw) > maxNumber/2:
			return data, len(data) > 0
		case len(raw) == 2 && !colon:
			data = append(data, raw[1], raw[0])
		default:
			data = append(data, raw...)
		}
	}
	return data, len(data) > 0
}
