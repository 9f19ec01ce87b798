package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// output copies one stream of a program to its writer.
type output struct {
	c      *conn
	fd     int
	to     io.Writer
	effort *backend.Effort
	stop   chan struct{} // closed: nothing more is read
	done   chan struct{} // closed at the end of the stream

	mu      sync.Mutex
	some    *sync.Cond
	arrived int64 // bytes that the relay has sent
	passed  int64 // bytes that the writer has got
	until   int64 // bytes that a flush waits for
	ended   bool
	err     error // why the stream was not read to its end
}

func newOutput(c *conn, fd int, to io.Writer, effort *backend.Effort) *output {
	if to == nil {
		to = io.Discard
	}
	o := &output{c: c, fd: fd, to: to, effort: effort, stop: make(chan struct{}), done: make(chan struct{})}
	o.some = sync.NewCond(&o.mu)
	go o.copy()
	return o
}

// copy copies the stream to its end.
func (o *output) copy() {
	defer close(o.done)
	err := o.pieces()
	o.mu.Lock()
	o.ended = true
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	o.some.Broadcast()
	o.mu.Unlock()
	o.c.drop(o.fd)
}

func (o *output) pieces() error {
	l := o.c.after(o.fd, pollIn)
	l.size, l.from = maxAnswer, 1
	l.try("read", num(o.fd), answer(0), num(maxAnswer))
	for {
		r, err := o.c.wait(o.stop, l, func(r reply) {
			o.mu.Lock()
			o.arrived += int64(len(r.bytes))
			o.mu.Unlock()
		})
		if err != nil {
			return err
		}
		n, err := r.value(0)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			o.effort.Pace(backend.CostPiece)
			continue
		case err != nil:
			return err
		case n != len(r.bytes):
			return errGone
		case n == 0:
			return io.EOF
		}
		_, _ = o.to.Write(r.bytes)
		o.mu.Lock()
		o.passed += int64(len(r.bytes))
		o.some.Broadcast()
		o.mu.Unlock()
		if n < backend.WholePiece {
			o.effort.Pace(backend.CostPiece)
		}
	}
}

const fionread = 0x541b

// flush waits until the writers of outputs have the bytes that are in the streams now. They come at once: if
// fewer come within answerLimit than the relay has said, the sandbox is given up.
func (c *conn) flush(ctx context.Context, outputs []*output) error {
	open := slices.DeleteFunc(slices.Clone(outputs), (*output).over)
	if len(open) > 0 {
		l := c.list()
		l.size = 4 * len(open)
		for i, o := range open {
			l.try("ioctl", num(o.fd), num(fionread), answer(4*i))
		}
		_, err := c.now(func(r reply) { // before any later output
			for i, o := range open {
				var waiting int64
				if _, failed := r.value(i); failed == nil && len(r.bytes) == l.size {
					waiting = int64(binary.LittleEndian.Uint32(r.bytes[4*i:]))
				}
				o.mark(waiting)
			}
		}, func(tag uint32) ([]byte, error) { return l.packet('Y', tag) })
		if err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var errs []error
	for _, o := range outputs {
		errs = append(errs, o.await(limited))
	}
	if limited.Err() != nil && ctx.Err() == nil {
		c.close()
		return fmt.Errorf("%w: it has more output than it sends", errGone)
	}
	return errors.Join(errs...)
}

// over reports whether the stream was read to its end.
func (o *output) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// mark records how many bytes wait in the stream after those that have arrived.
func (o *output) mark(bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = o.arrived + bytes
}

// await waits until the writer has the bytes up to the last mark.
func (o *output) await(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.some.Broadcast()
	})()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.passed < o.until && !o.ended && ctx.Err() == nil {
		o.some.Wait()
	}
	if o.ended {
		return o.err
	}
	return ctx.Err()
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// drop closes a descriptor of the relay. If the container has ended, so has the descriptor.
func (c *conn) drop(fd int) {
	l := c.list()
	l.try("close", num(fd))
	_, _, _ = c.ask(nil, func(tag uint32) ([]byte, error) { return l.packet('Y', tag) })
}

// writeSome writes bytes to a pipe or socket as soon as it takes some.
func (c *conn) writeSome(stop <-chan struct{}, fd int, p []byte) (int, error) {
	for {
		some := p[:min(len(p), 16<<10)]
		l := c.after(fd, pollOut)
		l.try("write", num(fd), l.bytes(some), num(len(some)))
		r, err := c.wait(stop, l, nil)
		if err != nil {
			return 0, err
		}
		n, err := r.value(0)
		if errors.Is(err, syscall.EAGAIN) {
			c.effort.Pace(backend.CostPiece)
			continue
		}
		if err == nil && (n == 0 && len(some) > 0 || n > len(some)) {
			return 0, errGone
		}
		return n, err
	}
}

// readSome reads bytes as soon as there are some.
func (c *conn) readSome(stop <-chan struct{}, fd int, p []byte) (int, error) {
	size := min(len(p), maxAnswer)
	l := c.after(fd, pollIn)
	l.size, l.from = size, 1
	l.try("read", num(fd), answer(0), num(size))
	for {
		r, err := c.wait(stop, l, nil)
		if err != nil {
			return 0, err
		}
		n, err := r.value(0)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			c.effort.Pace(backend.CostPiece)
			continue
		case err != nil:
			return 0, err
		case n != len(r.bytes) || n > size:
			return 0, errGone
		case n == 0 && size > 0:
			return 0, io.EOF
		}
		return copy(p, r.bytes), nil
	}
}

// input is a program's stdin.
type input struct {
	c    *conn
	fd   int
	turn chan struct{} // holds a value while a call writes
	over chan struct{} // closed: nothing more is written
	once sync.Once
}

func newInput(c *conn, fd int) *input {
	return &input{c: c, fd: fd, turn: make(chan struct{}, 1), over: make(chan struct{})}
}

// write writes all bytes, unless ctx ends.
func (i *input) write(ctx context.Context, p []byte) (n int, err error) {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-i.turn }()
	return i.put(ctx, p)
}

// put is write for a caller that has the turn.
func (i *input) put(ctx context.Context, p []byte) (n int, err error) {
	for n < len(p) {
		select {
		case <-i.over:
			return n, fs.ErrClosed
		default:
		}
		some, err := i.c.writeSome(ctx.Done(), i.fd, p[n:])
		n += some
		switch {
		case errors.Is(err, errStopped):
			return n, ctx.Err()
		case errors.Is(err, errGone):
			return n, syscall.EPIPE
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

// close ends the stream after the written bytes.
func (i *input) close(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-i.turn }()
	i.drop()
	return nil
}

func (i *input) drop() {
	i.once.Do(func() {
		close(i.over)
		i.c.drop(i.fd)
	})
}

// channel is a pair of private streams.
type channel struct {
	c      *conn
	from   int
	to     int // -1: the process does not have it
	effort *backend.Effort

	turn sync.Mutex // held by a Write
	over chan struct{}
	use  uses
}

func (c *channel) Read(p []byte) (int, error) {
	if !c.use.begin() {
		return 0, fs.ErrClosed
	}
	defer c.use.done()
	n, err := c.c.readSome(c.over, c.from, p)
	switch {
	case errors.Is(err, errStopped):
		err = fs.ErrClosed
	case errors.Is(err, errGone):
		err = io.EOF
	case n > 0:
		c.effort.Pace(backend.CostOf(n))
	}
	return n, err
}

func (c *channel) Write(p []byte) (n int, err error) {
	if c.to < 0 || !c.use.begin() {
		return 0, fs.ErrClosed
	}
	defer c.use.done()
	c.turn.Lock()
	defer c.turn.Unlock()
	for n < len(p) {
		some, err := c.c.writeSome(c.over, c.to, p[n:])
		n += some
		if errors.Is(err, errStopped) {
			return n, fs.ErrClosed
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close closes both directions.
func (c *channel) Close() error {
	if !c.use.end() {
		return nil
	}
	close(c.over)
	go func() {
		c.use.wait()
		c.c.drop(c.from)
		if c.to >= 0 {
			c.c.drop(c.to)
		}
	}()
	return nil
}

// within waits a bounded time for a channel to be closed.
func within(limit time.Duration, done <-chan struct{}) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
