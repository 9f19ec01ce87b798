package redact

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"strings"
)

// dumps finds secrets in the output of xxd, hexdump and od. Each line of such a dump has an
// offset and some bytes as numbers, so a value may span lines. A line that shows any part
// of a form is masked as a whole. dumps is the first stage of a Stream.
type dumps struct {
	a *automaton

	passing bool   // the rest of the current line is copied, because the line is not part of a dump
	line    []byte // an incomplete line that may belong to a dump
	held    []byte // lines of a dump that may still have to be masked
	lines   []dumped
	state   uint32
	pos     int64 // bytes that the dump has shown so far
	told    bool  // the last output was a mask, so the next masked line needs none
	found   int   // owner of a form that was found; -1: none
}

// dumped is a line of a dump.
type dumped struct {
	length int   // bytes of the line in held
	end    int64 // position in the dump after the line's bytes
	masked bool
}

// maxDumpLine is more than the length of any line of a dump.
const maxDumpLine = 256

func (a *automaton) dumps() *dumps { return &dumps{a: a, found: -1} }

// skip returns how many bytes at the beginning of p are certainly not in a dump, and
// whether a line that ends in them may end with a soft line break. It may be called only
// while nothing is held.
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

// through takes bytes and returns the output that can no longer change, either p itself or
// bytes in the buffer. soft reports whether it may contain a soft line break.
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

// write takes bytes and appends to dst the output that can no longer change.
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

// close ends the stream and appends the rest to dst.
func (d *dumps) close(dst []byte) []byte {
	if data, is := decodeDump(d.line); is {
		d.feed(data)
		d.line = d.line[:0]
	}
	dst = append(d.flush(dst), d.line...)
	d.line, d.passing = nil, false
	return dst
}

// feed searches the bytes that d.line shows, and marks the lines of each form that it finds.
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

// release appends the lines that end at or before a position of the dump to dst. It masks
// the marked ones.
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

// flush ends a dump and appends its held lines to dst.
func (d *dumps) flush(dst []byte) []byte {
	if len(d.lines) > 0 {
		dst = d.release(dst, d.pos)
	}
	d.state, d.pos, d.told = 0, 0, false
	return dst
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// offset returns the number of hex digits at the start of a line, and the rest of the line.
func offset(line []byte) (digits int, rest []byte) {
	for digits < len(line) && isHex(line[digits]) {
		digits++
	}
	return digits, line[digits:]
}

// mayDump reports whether an incomplete line may become a line of a dump.
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
	_, is := decodeDump(line) // the first number is complete
	return is
}

// dumpOffset reports whether an offset of that many digits, followed by rest, may begin a
// line of a dump.
func dumpOffset(digits int, rest []byte) bool {
	return digits >= 4 && digits <= 16 && len(rest) > 0 && (rest[0] == ':' || rest[0] == ' ')
}

// maxNumber is how many digits of a dump's line may stand without a blank.
const maxNumber = 32

// decodeDump returns the bytes that a line of a dump shows. The numbers are pairs of hex
// digits with a blank after one or several pairs. If there is no colon after the offset,
// they may also be little-endian words of two bytes, in hex or in octal.
func decodeDump(line []byte) (data []byte, is bool) {
	digits, rest := offset(line)
	if len(line) > maxDumpLine || !dumpOffset(digits, rest) {
		return nil, false
	}
	text := strings.TrimRight(string(rest), "\r\n")
	colon := text != "" && text[0] == ':'
	if colon { // in xxd's output two blanks end the numbers
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
