package terminal

import (
	"io"
	"strconv"
	"unicode/utf8"
)

// Filter passes on text and colors and drops everything else that a terminal acts upon:
// titles, links, the clipboard, reports, and all that moves the cursor or erases. It keeps
// its state between writes, so a sequence may come in pieces.
//
// A tab and a line end pass. A carriage return before a line end is dropped, and any other
// becomes a line end, because it would let a program write over its earlier output. Bytes
// that are not UTF-8 and characters that reorder text become U+FFFD.
//
// A Filter must not be used concurrently.
type Filter struct {
	to       io.Writer
	state    state
	params   []param // of the sequence that has begun
	marked   bool    // the sequence has a prefix or an intermediate byte
	out      []byte  // output of the current Write
	rest     []byte  // the beginning of a character that is not complete
	returned bool    // a carriage return came, and nothing after it
	colored  bool    // colors are not those of the terminal
}

// NewFilter returns a filter that writes to w. The caller calls [Filter.Close] at the end.
func NewFilter(w io.Writer) *Filter {
	return &Filter{to: w}
}

// Filtered returns s as a [Filter] passes it on.
func Filtered(s string) string {
	f := NewFilter(io.Discard)
	f.take([]byte(s))
	f.finish()
	return string(f.out)
}

// Write filters p. It returns the error of the writer below.
func (f *Filter) Write(p []byte) (int, error) {
	f.out = f.out[:0]
	f.take(p)
	if len(f.out) == 0 {
		return len(p), nil
	}
	if _, err := f.to.Write(f.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the text and restores the terminal's colors if the program left others. It
// does not close the writer below.
func (f *Filter) Close() error {
	f.out = f.out[:0]
	f.finish()
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.to.Write(f.out)
	return err
}

func (f *Filter) finish() {
	if len(f.rest) > 0 {
		f.rest = nil
		f.print(utf8.RuneError)
	}
	f.state = ground
	if f.colored {
		f.colored = false
		f.out = append(f.out, "\x1b[m"...)
	}
}

func (f *Filter) take(p []byte) {
	if len(f.rest) > 0 {
		p = append(f.rest, p...)
		f.rest = nil
	}
	for len(p) > 0 {
		if !utf8.FullRune(p) {
			f.rest = append([]byte(nil), p...)
			return
		}
		r, size := utf8.DecodeRune(p)
		p = p[size:]
		f.character(r)
	}
}

// character takes one character. The machine only sees ASCII: characters
// U+0080 to U+009F are control characters, too, and get the form that begins with an escape.
func (f *Filter) character(r rune) {
	switch {
	case r == '\n': // ends a sequence that is not complete, so that it cannot swallow what follows
		f.state = ground
		f.control('\n')
	case r < utf8.RuneSelf:
		f.advance(byte(r))
	case r < 0xa0:
		f.advance(esc)
		f.advance(byte(r - 0x40))
	case f.state.inString(): // the text of a dropped sequence
	default:
		f.state = ground
		f.print(r)
	}
}

// param is a number of a sequence.
type param struct {
	n    int  // -1: it is missing
	more bool // a number that belongs to it follows
}

const maxParams = 32 // of a sequence; the others are dropped

// advance takes a byte that is ASCII.
func (f *Filter) advance(b byte) {
	before := f.state
	to, what := before.next(b)
	f.state = to
	switch what {
	case printed:
		f.print(rune(b))
	case control:
		f.control(b)
	case parameter:
		f.parameter(b)
	case prefix, collected:
		f.marked = true
	case dispatched:
		if b == 'm' && before != escape && before != escapeIntermediate && !f.marked {
			f.sequence()
		}
	case none:
	}
	if to != before && (to == csiEntry || to == escape) {
		f.params, f.marked = append(f.params[:0], param{n: -1}), false
	}
}

// parameter takes a byte of the numbers of a sequence.
func (f *Filter) parameter(b byte) {
	if len(f.params) > maxParams {
		return
	}
	last := &f.params[len(f.params)-1]
	switch b {
	case ';', ':':
		last.more = b == ':'
		f.params = append(f.params, param{n: -1})
	default:
		last.n = min(max(last.n, 0)*10+int(b-'0'), longestColor+1)
	}
}

func (f *Filter) print(r rune) {
	f.endLine()
	if reorders(r) {
		r = utf8.RuneError
	}
	f.out = utf8.AppendRune(f.out, r)
}

// reorders reports whether r changes the direction of the text around it, or separates
// lines or paragraphs.
func reorders(r rune) bool {
	return r == '\u061c' || r == '\u200e' || r == '\u200f' || r >= '\u2028' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// endLine writes the line end that a carriage return before other text stands for.
func (f *Filter) endLine() {
	if f.returned {
		f.returned = false
		f.out = append(f.out, '\n')
	}
}

func (f *Filter) control(c byte) {
	switch c {
	case '\n':
		f.returned = false
		f.out = append(f.out, '\n')
	case '\r':
		f.returned = true
	case '\t':
		f.endLine()
		f.out = append(f.out, '\t')
	}
}

// longestColor bounds a number in a color sequence.
const longestColor = 9999

// sequence writes a color sequence (SGR) anew from its numbers.
func (f *Filter) sequence() {
	params := f.params
	if len(params) == 1 && params[0].n < 0 { // it has none
		params = nil
	}
	params = params[:min(len(params), maxParams)]
	text := []byte("\x1b[")
	colored := false
	for i, p := range params {
		n, more := p.n, p.more
		if n > longestColor {
			return
		}
		if n >= 0 {
			text = strconv.AppendInt(text, int64(n), 10)
		}
		colored = colored || n != 0 || p.more // a missing number or a part of one restores the colors in some terminals only
		switch {
		case i == len(params)-1:
		case more:
			text = append(text, ':')
		default:
			text = append(text, ';')
		}
	}
	f.endLine()
	f.out = append(append(f.out, text...), 'm')
	f.colored = colored
}
