package web

import "testing"

func TestTrimLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"\n a \n":               "a",
		"a  \nb\n\nc":           "a  \nb\n\nc",
		"a\n\n\n\nb":            "a\n\nb",
		"a\n \n  \n   b":        "a\n\n   b",
		"a  \n\nb":              "a\n\nb",
		"a  \n  \nb  \n \nc":    "a\n\nb\n\nc",
		"a\n\n\n\xff\n\n\n\xfe": "a\n\n\xff\n\n\xfe",
	} {
		if got := string(trimLines([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
