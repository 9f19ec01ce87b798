package stream

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Mask replaces secrets in a stream. Both methods append the output that is certain to dst.
// If the end of the input may be the beginning of a secret, it is held back until the next
// Write or Close.
type Mask interface {
	Write(dst, p []byte) []byte
	Close(dst []byte) []byte
}

// Capture keeps the first bytes of one output stream of a program. It can also pass them to
// a writer while the program runs. Its methods may be called concurrently.
type Capture struct {
	limit int64
	over  func()
	mask  Mask      // nil: nothing is masked
	to    io.Writer // nil: the output is not passed on while the program runs
	pump  pump

	mu     sync.Mutex
	buf    []byte // masked output of the program; at most limit bytes
	extra  []byte // lines that the server has added; shown after buf
	total  int64  // bytes that the program has written
	shown  int64  // bytes after masking; not counted further once it exceeds limit
	part   []byte // scratch space of mask
	ended  bool   // End was called
	closed bool   // Close was called
}

// NewCapture returns a Capture that keeps limit bytes. It calls over once, when the program
// has written [sandboxmcp.OutputKillFactor] times as many. If to is not nil, a goroutine
// passes the kept bytes to it. Neither the program nor its end waits for that writer. A nil
// mask masks nothing. The caller calls Close.
func NewCapture(limit int64, to io.Writer, over func(), mask Mask) *Capture {
	c := &Capture{limit: limit, over: over, mask: mask, to: to, pump: newPump()}
	if to == nil {
		close(c.pump.done)
	} else {
		go c.pump.run(c.pass())
	}
	return c
}

// Write takes bytes of the program. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
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
	c.pump.nudge()
	if !before && flooded {
		c.over()
	}
	return len(p), nil
}

// takeLocked masks bytes and keeps those that fit. The limit counts masked bytes.
func (c *Capture) takeLocked(p []byte) {
	if c.shown > c.limit {
		return
	}
	if c.mask != nil {
		c.part = c.mask.Write(c.part[:0], p)
		p = c.part
	}
	c.keepLocked(p)
}

func (c *Capture) keepLocked(p []byte) {
	c.shown += int64(len(p))
	if room := c.limit - int64(len(c.buf)); room > 0 {
		c.buf = append(c.buf, p[:min(int64(len(p)), room)]...)
	}
}

// End is called when the program writes no more. It releases bytes that were held back
// because they might have been the beginning of a secret.
func (c *Capture) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *Capture) endLocked() {
	if c.ended {
		return
	}
	c.ended = true
	if c.mask != nil {
		c.keepLocked(c.mask.Close(nil))
	}
}

// Line adds a line of the server after the output of the program. It implies End.
func (c *Capture) Line(s string) {
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

// Close ends the stream. Later writes are ignored. It implies End.
func (c *Capture) Close() {
	c.mu.Lock()
	c.endLocked()
	c.closed = true
	c.mu.Unlock()
	c.pump.nudge()
}

// pass returns a function that passes new bytes to the writer. It ignores errors: a writer
// that fails does not change the result.
func (c *Capture) pass() func() (over bool) {
	sent := 0
	return func() bool {
		for {
			c.mu.Lock()
			part, closed := c.buf[min(sent, len(c.buf)):], c.closed
			if closed { // extra follows buf, whose end is final now
				part = append(slices.Clip(part), c.extra[max(sent-len(c.buf), 0):]...)
			}
			c.mu.Unlock()
			if len(part) == 0 {
				return closed
			}
			_, _ = c.to.Write(part)
			sent += len(part)
		}
	}
}

// Flush waits until the writer has received everything, or ctx ends. Call it after Close.
func (c *Capture) Flush(ctx context.Context) { c.pump.flush(ctx) }

func (c *Capture) floodedLocked() bool { return c.total > c.limit*sandboxmcp.OutputKillFactor }

// Flooded reports whether the program exceeded its output so far that over was called.
func (c *Capture) Flooded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.floodedLocked()
}

// Size returns how many bytes the program wrote.
func (c *Capture) Size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Cut reports whether bytes were dropped because they exceed the limit.
func (c *Capture) Cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown > c.limit
}

// Text returns the kept bytes and the lines of the server as valid UTF-8. If the limit has
// cut a character in two, that character is dropped. Each invalid byte becomes U+FFFD.
func (c *Capture) Text() string {
	cut := c.Cut()
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.buf
	if cut {
		b = b[:len(b)-Unfinished(b)]
	}
	return Text(b) + string(c.extra)
}
