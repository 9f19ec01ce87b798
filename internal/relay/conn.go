package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// errGone means that the container has ended, or its stream.
var errGone = errors.New("the container has ended")

// answerLimit bounds the wait for an answer that needs no event in the sandbox. After it the sandbox is
// given up.
const answerLimit = 30 * time.Second

// conn is the server's side of a relay's stream.
type conn struct {
	stream io.ReadWriteCloser
	arch   seccomp.Arch
	effort *backend.Effort // bounds the server's time for ends of processes
	ended  func(exit)      // called for each end of a process, in their order

	writing sync.Mutex

	mu    sync.Mutex
	tag   uint32
	open  map[uint32]*question
	dead  bool
	gone  chan struct{} // closed when no answer comes any more
	ready chan struct{}
}

// question is a packet that has no answer yet.
type question struct {
	answer chan reply
	hook   func(reply) // called before any later packet is looked at; nil: none
}

// exit is the end of a process.
type exit struct {
	pid, status int
	cpu         time.Duration
	memory      int64
}

// newConn waits until the relay is ready, at most until ctx ends. It takes ownership of the stream.
func newConn(ctx context.Context, stream io.ReadWriteCloser, arch seccomp.Arch, effort *backend.Effort, ended func(exit)) (*conn, error) {
	c := &conn{stream: stream, arch: arch, effort: effort, ended: ended, open: map[uint32]*question{}, gone: make(chan struct{}), ready: make(chan struct{})}
	go c.read()
	select {
	case <-c.ready:
		return c, nil
	case <-c.gone:
		return nil, errGone
	case <-ctx.Done():
		c.close()
		return nil, ctx.Err()
	}
}

// close ends the stream. The relay exits at its end.
func (c *conn) close() {
	_ = c.stream.Close()
	c.fail()
}

func (c *conn) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.dead = true
	c.open = nil
	close(c.gone)
}

// read reads packets until the stream ends or breaks the rules.
func (c *conn) read() {
	defer c.close()
	r := bufio.NewReaderSize(c.stream, 64<<10)
	for first := true; ; first = false {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		size, kind, tag := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
		if size < 16 || size > maxPacket || first != (kind == 'R') {
			return
		}
		body := make([]byte, size-12)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		switch kind {
		case 'R':
			if tag != 1 {
				return
			}
			close(c.ready)
		case 'X':
			if len(body) < 12 {
				return
			}
			c.ended(exit{int(tag), int(binary.LittleEndian.Uint32(body)), time.Duration(binary.LittleEndian.Uint32(body[4:])) * time.Millisecond, int64(binary.LittleEndian.Uint32(body[8:])) << 10})
		case 'Y':
			if !c.answered(tag, body) {
				return
			}
		default:
			return
		}
	}
}

// answered hands on an answer. It returns false if it answers nothing.
func (c *conn) answered(tag uint32, body []byte) bool {
	n := int(binary.LittleEndian.Uint32(body))
	if n > 64 || len(body) < 4+8*n {
		return false
	}
	r := reply{results: make([]int64, n), bytes: body[4+8*n:]}
	for i := range r.results {
		r.results[i] = int64(binary.LittleEndian.Uint64(body[4+8*i:]))
	}
	c.mu.Lock()
	q, ok := c.open[tag]
	delete(c.open, tag)
	c.mu.Unlock()
	if !ok {
		return false
	}
	if q.hook != nil {
		q.hook(r)
	}
	q.answer <- r
	return true
}

// ask sends a packet that encode makes for its tag.
func (c *conn) ask(hook func(reply), encode func(tag uint32) ([]byte, error)) (uint32, *question, error) {
	q := &question{answer: make(chan reply, 1), hook: hook}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return 0, nil, errGone
	}
	c.tag++
	tag := c.tag
	c.open[tag] = q
	c.mu.Unlock()
	p, err := encode(tag)
	if err == nil {
		err = c.write(p)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.open, tag)
		c.mu.Unlock()
		return 0, nil, err
	}
	return tag, q, nil
}

// write writes a packet. If the relay does not read it within answerLimit, the sandbox is given up.
func (c *conn) write(p []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	defer time.AfterFunc(answerLimit, c.close).Stop()
	if _, err := c.stream.Write(p); err != nil {
		c.close()
		return errGone
	}
	return nil
}

// now returns the answer to a packet that the relay answers at once.
func (c *conn) now(hook func(reply), encode func(tag uint32) ([]byte, error)) (reply, error) {
	_, q, err := c.ask(hook, encode)
	if err != nil {
		return reply{}, err
	}
	return c.soon(q)
}

// soon returns the answer to a question that the relay answers at once. If it does not within
// answerLimit, the sandbox is given up.
func (c *conn) soon(q *question) (reply, error) {
	t := time.NewTimer(answerLimit)
	defer t.Stop()
	select {
	case r := <-q.answer:
		return r, nil
	case <-c.gone:
		return reply{}, errGone
	case <-t.C:
		c.close()
		return reply{}, fmt.Errorf("%w: it did not answer for %s", errGone, answerLimit)
	}
}

// run carries out a list that does not wait.
func (c *conn) run(l *list) (reply, error) {
	r, err := c.now(nil, func(tag uint32) ([]byte, error) { return l.packet('Y', tag) })
	if err == nil {
		err = r.check(l)
	}
	return r, err
}

// wait carries out a list that waits for a descriptor. If stop is closed first, it fails with
// errStopped, and the list was not carried out. The relay has answerLimit to stop. hook sees the answer
// before any later one is looked at.
func (c *conn) wait(stop <-chan struct{}, l *list, hook func(reply)) (reply, error) {
	select {
	case <-stop: // so that no answer keeps a caller that repeats the list
		return reply{}, errStopped
	default:
	}
	tag, q, err := c.ask(hook, func(tag uint32) ([]byte, error) { return l.packet('Y', tag) })
	if err != nil {
		return reply{}, err
	}
	select {
	case r := <-q.answer:
		return r, nil
	case <-c.gone:
		return reply{}, errGone
	case <-stop:
	}
	if err = c.write(words(12, 'Z', tag)); err != nil {
		return reply{}, err
	}
	r, err := c.soon(q) // it may have been carried out meanwhile
	if err == nil && len(r.results) == 1 && r.results[0] == -125 {
		err = errStopped
	}
	return r, err
}

var errStopped = errors.New("stopped")

// list returns an empty list.
func (c *conn) list() *list { return &list{arch: c.arch, fd: -1} }

// after returns an empty list that waits for events of a descriptor.
func (c *conn) after(fd, events int) *list { return &list{arch: c.arch, fd: fd, events: events} }

const (
	pollIn  = 1
	pollOut = 4
)
