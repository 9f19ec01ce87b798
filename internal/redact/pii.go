package redact

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Masks of personal data.
const (
	maskEmail = "[EMAIL]"
	maskPhone = "[PHONE]"
	maskCard  = "[CARD]"
	maskSSN   = "[SSN]"
)

// piiBytes is the length of the longest piece that is searched as a whole.
const piiBytes = 1024

// piiStream splits a stream into pieces and masks each. It splits where no address or
// number can continue, or after piiBytes, independently of how the bytes arrive.
type piiStream struct{ held []byte }

func (s *piiStream) write(dst, p []byte) []byte {
	for _, c := range p {
		if n := len(s.held); n > 0 && (n >= piiBytes || !joins(s.held[n-1], c)) {
			dst = s.close(dst)
		}
		s.held = append(s.held, c)
	}
	if n := len(s.held); n > 0 && kinds[s.held[n-1]] == 0 {
		dst = s.close(dst)
	}
	return dst
}

func (s *piiStream) close(dst []byte) []byte {
	dst = append(dst, maskPiece(s.held)...)
	s.held = s.held[:0]
	return dst
}

// maskPII masks a whole text.
func maskPII(text string) string {
	s := &piiStream{}
	return string(s.close(s.write(nil, []byte(text))))
}

// Kinds of personal data that a character can be a part of.
const (
	ofAddress = 1 << iota
	ofNumber
)

var kinds = func() (k [256]uint8) {
	for c := range k {
		if strings.IndexByte(letters+"._%+-@", byte(c)) >= 0 {
			k[c] |= ofAddress
		}
		if strings.IndexByte("0123456789 .-+()", byte(c)) >= 0 {
			k[c] |= ofNumber
		}
	}
	return k
}()

// joins reports whether an address or a number may continue from byte a to byte b.
func joins(a, b byte) bool { return kinds[a]&kinds[b] != 0 }

var (
	email = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`[A-Za-z0-9_%+-][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}`)
	})
	card = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[2-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{1,7}|3\d{3}[ -]?\d{6}[ -]?\d{4,5}|[2-6]\d{12,18})`)
	})
	ssn    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{3}[- ]\d{2}[- ]\d{4}`) })
	phones = sync.OnceValue(func() []*regexp.Regexp {
		return []*regexp.Regexp{
			regexp.MustCompile(`^\+\d{1,3}[ .-]?\(?\d{3}\)?[ .-]?\d{3}[ .-]?\d{4}`),
			regexp.MustCompile(`^\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}`),
			regexp.MustCompile(`^(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}`),
		}
	})
)

// maskPiece masks one piece.
func maskPiece(b []byte) []byte {
	at, digits := false, 0
	for _, c := range b {
		at = at || c == '@'
		if c >= '0' && c <= '9' {
			digits++
		}
	}
	if at {
		b = email().ReplaceAllLiteral(b, []byte(maskEmail))
	}
	if digits < 7 {
		return b
	}
	var out []byte
	for i := 0; i < len(b); {
		if mask, n := number(b, i); n > 0 {
			out = append(out, mask...)
			i += n
			continue
		}
		out = append(out, b[i])
		i++
	}
	return out
}

// number returns the mask and the length of the number that begins at b[i]; length 0: none.
func number(b []byte, i int) (mask string, n int) {
	if c := b[i]; c != '+' && c != '(' && (c < '0' || c > '9') || i > 0 && wordByte(b[i-1]) {
		return "", 0
	}
	rest := b[i:]
	whole := func(r *regexp.Regexp) []byte {
		m := r.Find(rest)
		if m == nil || len(m) < len(rest) && wordByte(rest[len(m)]) {
			return nil
		}
		return m
	}
	if m := whole(card()); m != nil && luhn(m) {
		return maskCard, len(m)
	}
	if m := whole(ssn()); m != nil && m[0] != '9' && string(m[:3]) != "000" && string(m[:3]) != "666" && m[3] == m[6] {
		return maskSSN, len(m)
	}
	for _, p := range phones() {
		if m := whole(p); m != nil && count(m) >= 8 && count(m) <= 15 {
			return maskPhone, len(m)
		}
	}
	return "", 0
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// count counts the digits.
func count(b []byte) (n int) {
	for _, c := range b {
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}

// luhn reports whether a card number has a valid length and check digit.
func luhn(b []byte) bool {
	n := count(b)
	if n < 13 || n > 19 {
		return false
	}
	sum, double := 0, false
	for _, c := range slices.Backward(b) {
		if c < '0' || c > '9' {
			continue
		}
		d := int(c - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}
