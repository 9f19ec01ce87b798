package engine

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// capture keeps the first bytes of a stream and calls over when there is far
// too much. A writer that wants them as they come gets them from a goroutine of
// its own: however slow it is, the program and its end do not wait for it.
type capture struct {
	limit int64
	over  func()

	mask *redact.Stream // nil: there is nothing to mask
	to   io.Writer      // may be nil
	more chan struct{}  // something is there for to
	sent chan struct{}  // closed when to has everything

	mu     sync.Mutex
	buf    []byte // the program's bytes, masked, up to limit
	extra  []byte // our own words, after the program's
	total  int64  // bytes of the program
	shown  int64  // bytes of it, masked; not counted any more when that is above limit
	part   []byte // what was masked last
	ended  bool   // the program's bytes are whole
	closed bool
}

func newCapture(limit int64, to io.Writer, over func(), mask *redact.Stream) *capture {
	c := &capture{limit: limit, over: over, mask: mask, to: to, more: make(chan struct{}, 1), sent: make(chan struct{})}
	if to == nil {
		close(c.sent)
	} else {
		go c.relay()
	}
	return c
}

// Write takes bytes of the program.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	before := c.floodedLocked()
	if !c.closed {
		if !c.ended {
			c.takeLocked(p)
		}
		c.total += int64(len(p))
	}
	flooded := c.floodedLocked()
	c.mu.Unlock()
	c.nudge()
	if !before && flooded {
		c.over()
	}
	return len(p), nil
}

// takeLocked keeps what there is room for, after it was masked: only then is it
// known where the cut is.
func (c *capture) takeLocked(p []byte) {
	if c.shown > c.limit {
		return
	}
	if c.mask != nil {
		c.part = c.mask.Write(c.part[:0], p)
		p = c.part
	}
	c.keepLocked(p)
}

func (c *capture) keepLocked(p []byte) {
	c.shown += int64(len(p))
	if room := c.limit - int64(len(c.buf)); room > 0 {
		c.buf = append(c.buf, p[:min(int64(len(p)), room)]...)
	}
}

// end tells that the program writes no more: what was held back because it might
// have been the beginning of a secret comes out.
func (c *capture) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *capture) endLocked() {
	if c.ended {
		return
	}
	c.ended = true
	if c.mask != nil {
		c.keepLocked(c.mask.Close(nil))
	}
}

// line adds a line of ours, on a line of its own. The program's bytes are whole.
func (c *capture) line(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
	last := c.buf
	if len(c.extra) > 0 {
		last = c.extra
	}
	if n := len(last); n > 0 && last[n-1] != '\n' {
		s = "\n" + s
	}
	c.extra = append(c.extra, s+"\n"...)
}

// close ends the stream: what comes later is not the program's any more.
func (c *capture) close() {
	c.mu.Lock()
	c.endLocked()
	c.closed = true
	c.mu.Unlock()
	c.nudge()
}

func (c *capture) nudge() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// relay hands everything on until the stream is closed. Errors are ignored: who
// does not want the bytes still gets the result.
func (c *capture) relay() {
	defer close(c.sent)
	sent := 0
	for {
		c.mu.Lock()
		part, closed := c.buf[min(sent, len(c.buf)):], c.closed
		if closed { // only now is the end of buf known
			part = append(slices.Clip(part), c.extra[max(sent-len(c.buf), 0):]...)
		}
		c.mu.Unlock()
		if len(part) > 0 {
			_, _ = c.to.Write(part)
			sent += len(part)
			continue
		}
		if closed {
			return
		}
		<-c.more
	}
}

// flush waits until the writer has everything, or ctx ends.
func (c *capture) flush(ctx context.Context) {
	select {
	case <-c.sent:
	case <-ctx.Done():
	}
}

func (c *capture) floodedLocked() bool { return c.total > c.limit*sandboxmcp.OutputKillFactor }

// flooded tells that there was far too much.
func (c *capture) flooded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.floodedLocked()
}

// size is how many bytes the program wrote.
func (c *capture) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// cut tells that there is more than is kept.
func (c *capture) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown > c.limit
}

// text returns the stream as valid UTF-8: a character that the cut halved is
// dropped, bytes that are none become U+FFFD.
func (c *capture) text() string {
	cut := c.cut()
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.buf
	if cut {
		b = wholeRunes(b)
	}
	return toUTF8(b) + string(c.extra)
}

// wholeRunes drops an incomplete character at the end.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}

func toUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	size := 0 // which may be three times that of b: grown step by step, it would take much more
	for rest := b; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		size += utf8.RuneLen(r)
		rest = rest[n:]
	}
	var s strings.Builder
	s.Grow(size)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		s.WriteRune(r) // RuneError is U+FFFD
		b = b[n:]
	}
	return s.String()
}
