package web

import (
	"strings"
	"testing"
)

// TestIsPrintable: what it accepts is what printable leaves as it is.
func TestIsPrintable(t *testing.T) {
	for _, s := range []string{"", "a", "a\tb\n", "häl €", "\u00a0\u00bf", "a\x00", "\x1b[0m", "\x7f", "\u0085", "\u009f", "a\r\n", "\xff", "\xc2", "\xc2a", "\xe2\x82", "\xed\xa0\x80"} {
		if got, want := isPrintable(s), strings.Map(func(r rune) rune { return r }, printable(s)) == s; got != want {
			t.Errorf("%q: got %v, want %v; printable gives %q", s, got, want, printable(s))
		}
	}
}
