package terminal

import (
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/parser"
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
	parser   *ansi.Parser
	out      []byte // output of the current Write
	rest     []byte // the beginning of a character that is not complete
	returned bool   // a carriage return came, and nothing after it
	colored  bool   // colors are not those of the terminal
}

// NewFilter returns a filter that writes to w. The caller calls [Filter.Close] at the end.
func NewFilter(w io.Writer) *Filter {
	f := &Filter{to: w, parser: &ansi.Parser{}}
	f.parser.SetParamsSize(parser.MaxParamsSize)
	f.parser.SetDataSize(1) // the text of dropped sequences is not needed
	f.parser.SetHandler(ansi.Handler{Print: f.print, Execute: f.control, HandleCsi: f.sequence})
	return f
}

// Filtered returns s as a [Filter] passes it on.
func Filtered(s string) string {
	f := NewFilter(io.Discard)
	f.take([]byte(s))
	f.finish()
	return string(f.out)
}

// Plain returns text without the sequences that a terminal acts upon, colors included.
func Plain(text string) string { return ansi.Strip(text) }

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
	f.parser.Reset()
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

// character gives the parser one character. The parser only sees ASCII: characters
// U+0080 to U+009F are control characters, too, and get the form that begins with an escape.
func (f *Filter) character(r rune) {
	switch {
	case r == '\n': // ends a sequence that is not complete, so that it cannot swallow what follows
		f.parser.Reset()
		f.control('\n')
	case r < utf8.RuneSelf:
		f.parser.Advance(byte(r))
	case r < 0xa0:
		f.parser.Advance(ansi.ESC)
		f.parser.Advance(byte(r - 0x40))
	default:
		switch f.parser.State() {
		case parser.DcsStringState, parser.OscStringState, parser.SosStringState, parser.PmStringState, parser.ApcStringState:
			return // the text of a dropped sequence
		default:
			f.parser.Reset()
			f.print(r)
		}
	}
}

func (f *Filter) print(r rune) {
	f.endLine()
	if reorders(r) {
		r = utf8.RuneError
	}
	f.out = utf8.AppendRune(f.out, r)
}

// reorders reports whether r changes the direction of the text after it, or separates
// lines or paragraphs.
func reorders(r rune) bool {
	return r >= '\u2028' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
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
func (f *Filter) sequence(cmd ansi.Cmd, params ansi.Params) {
	if cmd.Final() != 'm' || cmd.Prefix() != 0 || cmd.Intermediate() != 0 {
		return
	}
	text := []byte("\x1b[")
	colored := false
	for i := range params {
		n, more, _ := params.Param(i, -1)
		if n < -1 || n > longestColor {
			return
		}
		if n >= 0 {
			text = strconv.AppendInt(text, int64(n), 10)
		}
		colored = colored || n > 0 // a 0 may be a part of a color
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
