package terminal

import (
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/clipperhouse/uax29/v2/graphemes"
)

// state is where in a control sequence a text is (ECMA-48). The machine is that of a DEC VT500, whose text may
// be UTF-8: https://vt100.net/emu/dec_ansi_parser
type state byte

const (
	ground state = iota
	escape
	escapeIntermediate
	csiEntry
	csiParam
	csiIntermediate
	dcsEntry
	dcsParam
	dcsIntermediate
	dcsString
	oscString
	otherString // SOS, PM or APC
	character   // the first byte of a character of several bytes
)

// inString reports whether the text is the content of a sequence, such as a title.
func (s state) inString() bool { return s == dcsString || s == oscString || s == otherString }

// action is what a byte means.
type action byte

const (
	none action = iota
	printed
	control   // is a control character
	collected // is an intermediate byte, which follows the parameters of a sequence
	parameter
	prefix // says that a sequence is private
	dispatched
)

const (
	esc = 0x1b
	del = 0x7f
)

// next returns the state after a byte, and what the byte means in the state before.
func (s state) next(b byte) (state, action) {
	switch {
	case b == esc && s == dcsEntry:
		return dcsString, none
	case b == esc:
		return escape, none
	case b == 0x18 || b == 0x1a: // CAN and SUB
		if s.inString() {
			return ground, none
		}
		return ground, control
	case b >= 0x80:
		return s.nextHigh(b)
	}
	switch s {
	case ground:
		if b < ' ' || b == del {
			return ground, control
		}
		return ground, printed
	case escape, escapeIntermediate:
		return s.nextEscape(b)
	case csiEntry, csiParam, csiIntermediate:
		return s.nextCSI(b)
	case dcsEntry, dcsParam, dcsIntermediate:
		return s.nextDCS(b)
	case oscString:
		if b == '\a' {
			return ground, none
		}
	case dcsString, otherString, character:
	}
	return s, none
}

// nextHigh is [state.next] of a byte that is not ASCII.
func (s state) nextHigh(b byte) (state, action) {
	switch {
	case b == 0x9c && s.inString(): // ST
		return ground, none
	case s.inString():
		return s, none
	case b == 0x90:
		return dcsEntry, none
	case b == 0x98 || b == 0x9e || b == 0x9f:
		return otherString, none
	case b == 0x9b:
		return csiEntry, none
	case b == 0x9d:
		return oscString, none
	case b < 0xa0:
		return ground, control
	case b >= 0xc2 && b <= 0xf4:
		return character, none
	}
	return ground, none
}

// nextEscape is [state.next] after an escape character.
func (s state) nextEscape(b byte) (state, action) {
	switch {
	case b < ' ':
		return s, control
	case b < '0':
		return escapeIntermediate, collected
	case b == del:
		return s, none
	case s == escapeIntermediate:
		return ground, dispatched
	}
	switch b {
	case 'P':
		return dcsEntry, none
	case '[':
		return csiEntry, none
	case ']':
		return oscString, none
	case 'X', '^', '_':
		return otherString, none
	}
	return ground, dispatched
}

// nextCSI is [state.next] in a control sequence.
func (s state) nextCSI(b byte) (state, action) {
	switch {
	case b < ' ':
		return s, control
	case b < '0':
		return csiIntermediate, collected
	case b == del:
		return s, none
	case b >= '@':
		return ground, dispatched
	case s == csiIntermediate:
		return ground, none
	case b <= ';':
		return csiParam, parameter
	case s == csiEntry:
		return csiParam, prefix
	}
	return s, none
}

// nextDCS is [state.next] before the text of a device control string.
func (s state) nextDCS(b byte) (state, action) {
	switch {
	case s == dcsEntry && b >= '\b' && b <= '\r':
		return dcsString, none
	case b < ' ' || b == del:
		return s, none
	case b < '0':
		return dcsIntermediate, collected
	case b >= '@' || s == dcsIntermediate:
		return dcsString, none
	case b <= ';':
		return dcsParam, parameter
	case s == dcsEntry:
		return dcsParam, prefix
	}
	return s, none
}

// cluster returns what one character on a screen is made of at the beginning of text, and its columns.
func cluster(text string) (string, int) {
	c := graphemes.FromString(text).First()
	return c, displaywidth.String(c)
}

// Plain returns text without the sequences that a terminal acts upon, colors included.
func Plain(text string) string {
	var out strings.Builder
	s := ground
	for i := 0; i < len(text); i++ {
		b := text[i]
		to, what := s.next(b)
		switch {
		case to == character:
			n := min(i+runeLength(b), len(text))
			out.WriteString(text[i:n])
			i, to = n-1, ground
		case what == printed || what == control:
			out.WriteByte(b)
		}
		s = to
	}
	return out.String()
}

// runeLength returns how many bytes the character has that begins with b.
func runeLength(b byte) int {
	switch {
	case b < 0xe0:
		return 2
	case b < 0xf0:
		return 3
	}
	return utf8.UTFMax
}

// Columns returns how many columns of a terminal a line of text takes. Colors take none.
func Columns(line string) int {
	columns := 0
	s := ground
	for i := 0; i < len(line); i++ {
		to, what := s.next(line[i])
		if to == character || what == printed {
			c, width := cluster(line[i:])
			columns += width
			i, to = i+len(c)-1, ground
		}
		s = to
	}
	return columns
}

// chop breaks a text into lines of at most width columns, between any characters.
func chop(text string, width int) []string {
	var lines []string
	var line strings.Builder
	columns := 0
	room := func(n int) {
		if columns+n > width {
			lines = append(lines, line.String())
			line.Reset()
			columns = 0
		}
	}
	s := ground
	for i := 0; i < len(text); i++ {
		b := text[i]
		to, what := s.next(b)
		switch {
		case to == character:
			c, n := cluster(text[i:])
			room(n)
			line.WriteString(c)
			columns += n
			i, to = i+len(c)-1, ground
		case b == '\n' && what == control:
			room(width + 1)
		case what == printed || what == control:
			room(1)
			line.WriteByte(b)
			if what == printed {
				columns++
			}
		default:
			line.WriteByte(b)
		}
		s = to
	}
	return append(lines, line.String())
}
