package stream

import (
	"strings"
	"unicode/utf8"
)

// Unfinished returns how many bytes at the end of b are an incomplete UTF-8 character.
func Unfinished(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// Text returns b as valid UTF-8. Each invalid byte becomes U+FFFD.
func Text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	size := 0 // computed first, because it can be three times that of b, and growing step by step would take much more
	for rest := b; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		size += utf8.RuneLen(r)
		rest = rest[n:]
	}
	var s strings.Builder
	s.Grow(size)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		s.WriteRune(r) // utf8.RuneError is U+FFFD
		b = b[n:]
	}
	return s.String()
}
