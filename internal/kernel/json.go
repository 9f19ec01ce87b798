package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a program's JSON value. Some readers stop at 64 levels,
// and answers nest the value in further ones. maxParts bounds the members, elements and
// brackets of a value that is shown: masking and encoding take the server's time for each.
// Values of eight bytes and more reach the limit of a frame first.
const (
	maxDepth = 50
	maxParts = 1 << 17
)

var (
	errDeep  = errors.New("the JSON value is nested too deep")
	errLarge = errors.New("the JSON value has a number that is too large")
	errMany  = errors.New("the JSON value has too many parts")
)

// CleanJSON returns a program's JSON value in a form that can be embedded in an answer:
// valid UTF-8, no lone surrogates, and at most maxDepth levels. json.RawMessage checks
// none of these, and a client with a strict parser would drop the connection.
func CleanJSON(text []byte) (json.RawMessage, error) { return cleanJSON(text, false) }

// cleanShown is CleanJSON for display frames. It also refuses more than maxParts parts, and
// numbers that do not fit into a double, because clients read numbers as doubles.
func cleanShown(text []byte) (json.RawMessage, error) { return cleanJSON(text, true) }

// cleanJSON reads the text once and decodes only the strings that it repairs. Decoding all of it
// takes a hundred times as long.
func cleanJSON(text []byte, shown bool) (json.RawMessage, error) {
	if !json.Valid(text) {
		return nil, errors.New("the value is not JSON")
	}
	var repaired bytes.Buffer
	copied, depth, parts := 0, 0, 0 // copied: bytes of text that repaired stands for
	for i := 0; i < len(text); {
		end := i + 1
		switch c := text[i]; {
		case c == '[' || c == '{':
			depth++
			parts++
		case c == ']' || c == '}':
			depth--
		case c == ',':
			parts++
		case c == '"':
			end = endOfString(text, i)
			if s := text[i:end]; !utf8.Valid(s) || bytes.IndexByte(s, '\\') >= 0 && halves().Match(s) {
				repaired.Write(text[copied:i])
				repair(&repaired, s)
				copied = end
			}
		case shown && (c == '-' || c >= '0' && c <= '9'):
			for end < len(text) && bytes.IndexByte(numeric, text[end]) >= 0 {
				end++
			}
			if !isDouble(text[i:end]) {
				return nil, errLarge
			}
		}
		if depth > maxDepth {
			return nil, errDeep
		}
		if shown && parts > maxParts {
			return nil, errMany
		}
		i = end
	}
	if copied == 0 {
		return slices.Clone(text), nil
	}
	repaired.Write(text[copied:])
	var compact bytes.Buffer
	err := json.Compact(&compact, repaired.Bytes())
	return compact.Bytes(), err
}

// numeric holds the characters of a number after its first.
var numeric = []byte("0123456789.eE+-")

// isDouble reports whether a number fits into a double. Without an exponent, a short one does.
func isDouble(number []byte) bool {
	const short = 300
	if len(number) < short && !bytes.ContainsAny(number, "eE") {
		return true
	}
	_, err := strconv.ParseFloat(string(number), 64)
	return err == nil
}

// endOfString returns the position behind the string that starts at from, in valid JSON.
func endOfString(text []byte, from int) int {
	for i := from + 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// halves matches escapes of surrogates.
var halves = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\\u[dD][89a-fA-F]`) })

// repair writes a string of valid JSON that has lone surrogates or invalid UTF-8. It decodes nothing
// else, because package json takes ten times as long for many short strings.
func repair(out *bytes.Buffer, text []byte) {
	for len(text) > 0 {
		size := 1
		switch c := text[0]; {
		case c == '\\' && text[1] == 'u' && utf16.IsSurrogate(escaped(text)):
			r := utf8.RuneError
			size = len(`\uXXXX`)
			if next := text[size:]; next[0] == '\\' && next[1] == 'u' {
				if r = utf16.DecodeRune(escaped(text), escaped(next)); r != utf8.RuneError {
					size *= 2
				}
			}
			out.WriteRune(r)
		case c == '\\':
			size = 2
			out.Write(text[:size])
		case c < utf8.RuneSelf:
			out.WriteByte(c)
		default:
			var r rune
			r, size = utf8.DecodeRune(text)
			out.WriteRune(r)
		}
		text = text[size:]
	}
}

// escaped returns the number of the escape \uXXXX that text begins with.
func escaped(text []byte) (r rune) {
	for _, c := range text[2:6] {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		default:
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}
