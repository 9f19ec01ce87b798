package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
)

// greedless is a body. It remembers how much memory was offered to it beyond what it had given.
type greedless struct {
	left    []byte
	given   int
	offered int
}

func (b *greedless) Read(p []byte) (int, error) {
	b.offered = max(b.offered, len(p)-b.given)
	if len(b.left) == 0 {
		return 0, io.ErrUnexpectedEOF // as the body of a connection that has ended
	}
	n := copy(p, b.left)
	b.left, b.given = b.left[n:], b.given+n
	return n, nil
}

// TestABodyTakesMemoryAsItArrives: the length that a client announces takes no memory by itself.
func TestABodyTakesMemoryAsItArrives(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 10*firstRead/16)
	for name, c := range map[string]struct {
		sent     []byte
		announce int64
		err      error
	}{
		"nothing sent": {nil, maxLine, io.ErrUnexpectedEOF},
		"a part sent":  {text, maxLine, io.ErrUnexpectedEOF},
		"all sent":     {text, int64(len(text)), nil},
		"small":        {text[:100], 100, nil},
		"empty":        {nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := &greedless{left: c.sent}
			got, err := readBody(&http.Request{ContentLength: c.announce, Body: io.NopCloser(b)}, maxLine)
			if !errors.Is(err, c.err) || !bytes.Equal(got, c.sent) {
				t.Errorf("got %d bytes and %v, want the %d that were sent and %v", len(got), err, len(c.sent), c.err)
			}
			if b.offered > firstRead {
				t.Errorf("got memory for %d bytes before they came, want at most %d", b.offered, firstRead)
			}
			if most := 2*len(c.sent) + firstRead + firstRead/4; cap(got) > most {
				t.Errorf("got a capacity of %d, want at most %d", cap(got), most)
			}
		})
	}
}
