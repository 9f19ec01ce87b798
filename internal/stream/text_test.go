package stream_test

import (
	"testing"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

func TestUnfinished(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 0, "\u00e9": 0, "a\xc3": 1, "a\xe2\x82": 2, "\xf0\x9f\x98": 3, "\u20ac": 0,
		"a\xff": 0, "\x80\x80\x80\x80": 0, "a\xe2\x82x": 0, "\xc3\xc3": 1,
	} {
		if got := stream.Unfinished([]byte(text)); got != want {
			t.Errorf("%q: %d bytes are unfinished, want %d", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for bytes, want := range map[string]string{"plain \u00e9": "plain \u00e9", "a\xff\xfeb": "a\ufffd\ufffdb", "\xe2\x82": "\ufffd\ufffd", "": ""} {
		if got := stream.Text([]byte(bytes)); got != want || !utf8.ValidString(got) {
			t.Errorf("%q is %q, want %q", bytes, got, want)
		}
	}
}
