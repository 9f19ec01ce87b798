package terminal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
)

// filterCases are outputs of programs, and what a terminal may get of them.
var filterCases = []struct{ name, in, want string }{
	{"text", "häß 日本 😀\ttab\n", "häß 日本 😀\ttab\n"},
	{"colors", "\x1b[1;31mred\x1b[0m \x1b[38;5;208morange\x1b[m", "\x1b[1;31mred\x1b[0m \x1b[38;5;208morange\x1b[m"},
	{"colors with sub-parameters", "\x1b[4:3;38:2::1:2:3mx\x1b[0m", "\x1b[4:3;38:2::1:2:3mx\x1b[0m"},
	{"color that is left", "\x1b[8mhidden", "\x1b[8mhidden\x1b[m"},
	{"color that some terminals restore", "\x1b[8m\x1b[0:0mhidden", "\x1b[8m\x1b[0:0mhidden\x1b[m"},
	{"color that some terminals restore, without numbers", "\x1b[8m\x1b[:mhidden", "\x1b[8m\x1b[:mhidden\x1b[m"},
	{"color that zeros restore", "\x1b[8m\x1b[0;0mshown", "\x1b[8m\x1b[0;0mshown"},
	{"clipboard", "a\x1b]52;c;ZXZpbA==\x07b", "ab"},
	{"title", "a\x1b]0;owned\x1b\\b", "ab"},
	{"link", "a\x1b]8;;http://evil.example/\x07b", "ab"},
	{"title of wide characters", "a\x1b]0;日本\x07b", "ab"},
	{"erase", "a\x1b[2Jb", "ab"},
	{"cursor", "a\x1b[1;1H\x1b[5Ab", "ab"},
	{"save and restore", "a\x1b7\x1b8b", "ab"},
	{"reset", "a\x1bcb", "ab"},
	{"report", "a\x1b[6nb", "ab"},
	{"screen", "a\x1b[?1049hb", "ab"},
	{"private color", "a\x1b[>4;2mb\x1b[?4mc", "abc"},
	{"color with an intermediate byte", "a\x1b[1 mb", "ab"},
	{"device control", "a\x1bP$qm\x1b\\b", "ab"},
	{"other strings", "a\x1b_x\x1b\\\x1b^y\x1b\\\x1bXz\x1b\\b", "ab"},
	{"character set", "a\x1b(0\x0eb", "ab"},
	{"C1 in UTF-8", "a\u009b2Jb\u009d0;owned\u009cc\u0090x\u009cd", "abcd"},
	{"C1 as bytes", "a\x9b2Jb", "a\ufffd2Jb"},
	{"color in C1", "\u009b31mred\u009b0m", "\x1b[31mred\x1b[0m"},
	{"control inside of a sequence", "a\x1b[3\x081mb\x1b[mc", "a\x1b[31mb\x1b[mc"},
	{"bell inside of a color", "a\x1b[3\a1mb\x1b[mc", "a\x1b[31mb\x1b[mc"},
	{"color of many numbers", "a\x1b[" + strings.Repeat("1;", 40) + "1mb", "a\x1b[" + strings.Repeat("1;", 31) + "1mb\x1b[m"},
	{"escape twice", "a\x1b\x1b[31mb\x1b[m", "a\x1b[31mb\x1b[m"},
	{"escape in a device control", "a\x1bP\x1b[31mb\x1b\\c", "ac"},
	{"escape inside of a character", "a\xe2\x1b[5Ab", "a\ufffdb"},
	{"cancelled", "a\x1b[5\x18Ab", "aAb"},
	{"bell and backspace", "a\a\b\vb\x00", "ab"},
	{"carriage return", "10%\r20%\r\ndone\r\r\n", "10%\n20%\ndone\n"},
	{"direction", "a\u202eb\u2066c\u2028d", "a\ufffdb\ufffdc\ufffdd"},
	{"marks of direction", "a\u061cb\u200ec\u200fd", "a\ufffdb\ufffdc\ufffdd"},
	{"string without an end", "a\x1b]0;owned\nb\x1bPx\nc", "a\nb\nc"},
	{"sequence without an end", "a\x1b[5", "a"},
	{"half a character", "a\xe6\x97", "a\ufffd"},
	{"huge number", "a\x1b[99999999999999999999mb", "ab"},
}

func TestFilterPassesTextAndColorsOnly(t *testing.T) {
	for _, c := range filterCases {
		if got := terminal.Filtered(c.in); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPlainTextHasNoSequences(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"häß 日本 😀\tx\n":                 "häß 日本 😀\tx\n",
		"a\x1b[1;31mb\x1b[0mc":          "abc",
		"a\x1b]0;title\ab\x1bPx\x1b\\c": "abc",
		"a\x1b(0b\x1b[?25lc\x1b[5":      "abc",
		"a\x9b31mb\x9dtitle\x9cc\xffd":  "abcd",
		"cut \xe6\x97":                  "cut \xe6\x97",
		"a\x1b[3\b1mb":                  "a\bb",
		"a\x1b_other \xc3\xa4\x1b\\b":   "ab",
	} {
		if got := terminal.Plain(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestColumnsOfALine(t *testing.T) {
	for in, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "e\u0301": 1, "👩‍👩‍👧": 2, "\x1b[31mred\x1b[0m": 3, "\x1b]0;title\a": 0, "a\tb": 2} {
		if got := terminal.Columns(in); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

func TestFilterKeepsItsStateBetweenWrites(t *testing.T) {
	for _, c := range filterCases {
		for size := 1; size < 4; size++ {
			var got bytes.Buffer
			f := terminal.NewFilter(&got)
			for rest := c.in; rest != ""; {
				part := rest[:min(size, len(rest))]
				rest = rest[len(part):]
				if n, err := f.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("%s: got %d, %v, want %d bytes written", c.name, n, err, len(part))
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("%s in pieces of %d: got %q, want %q", c.name, size, got.String(), c.want)
			}
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, c := range filterCases {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := terminal.Filtered(in)
		for rest := out; rest != ""; {
			before, after, found := strings.Cut(rest, "\x1b[")
			for _, r := range before {
				if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
					t.Fatalf("got %q of %q, which has the control character %q", out, in, r)
				}
			}
			if !found {
				break
			}
			end := strings.IndexFunc(after, func(r rune) bool { return !strings.ContainsRune("0123456789;:", r) })
			if end < 0 || after[end] != 'm' {
				t.Fatalf("got %q of %q, which has a sequence that is no color", out, in)
			}
			rest = after[end+1:]
		}
		if again := terminal.Filtered(out); again != out {
			t.Fatalf("got %q of the filtered text %q, want it unchanged", again, out)
		}
	})
}
