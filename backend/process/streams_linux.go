package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// pipes holds the streams of a process: the descriptors for the process, the server's ends, and the
// goroutines that copy between the server's ends and the caller.
type pipes struct {
	theirs  []int      // descriptors that become 0, 1, 2, 3 … of the process
	channel *channel   // descriptors 3 and 4; nil: none
	further []*channel // descriptors 5 and 6, and so on
	copies  sync.WaitGroup
	ours    []*os.File
	stdin   *inflow // nil: it does not stay open
	outputs []*output
	effort  *backend.Effort // of the sandbox

	once sync.Once
	done chan struct{} // closed when every stream has been copied to its end; see copied
}

// channel is the server's side of a pair of a process's private streams. They are pipes, because a
// Unix socket can carry descriptors. The kernel would close descriptors that a program sends in the
// server's thread. Closing a lingering socket can block for as long as the program likes.
type channel struct {
	from *inlet   // from the first descriptor of the pair
	to   *os.File // to the second; nil: the process does not have it
}

func (c *channel) Read(p []byte) (int, error) { return c.from.Read(p) }

func (c *channel) Write(p []byte) (int, error) {
	if c.to == nil {
		return 0, os.ErrClosed
	}
	return c.to.Write(p)
}

// mute closes the direction from the server to the process.
func (c *channel) mute() {
	if c.to != nil {
		_ = c.to.Close()
		c.to = nil
	}
}

// Close closes both directions.
func (c *channel) Close() error {
	err := c.from.Close()
	if c.to != nil {
		err = errors.Join(err, c.to.Close())
	}
	return err
}

// output copies one stream to its writer.
type output struct {
	*inlet

	to  io.Writer
	put slowCalls  // calls of to, which may have to look for secrets in all that it gets
	tty bool       // the stream is a terminal
	mu  sync.Mutex // held from before a read until its bytes are written to the writer
	err error      // why the stream was not read to its end; guarded by mu
}

// take reads available bytes and writes them to the writer, until there are at least limit bytes.
// slow is the extra time that the kernel and the writer took. The error is io.EOF at the end of the
// stream, and unix.EAGAIN if no more bytes are available.
func (o *output) take(fd uintptr, limit int64) (taken int64, slow time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool holds nothing else
	defer chunks.Put(b)
	for taken < limit {
		var n int
		slow += o.calls.do(func() { n, err = unix.Read(int(fd), *b) })
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n == 0 && err == nil, o.tty && errors.Is(err, unix.EIO): // no program has the terminal open
			return taken, slow, io.EOF
		case err != nil:
			return taken, slow, err
		}
		slow += o.put.do(func() { _, _ = o.to.Write((*b)[:n]) })
		taken += int64(n)
	}
	return taken, slow, nil
}

// copy copies the stream to its end. If it ends otherwise, copy records the error in o.err.
func (o *output) copy() {
	for {
		rest, err := o.some()
		if err == nil && rest > 0 {
			err = o.rest(rest)
		}
		if err != nil || rest == 0 {
			_ = o.failed(err)
			return
		}
	}
}

// some copies until the stream ends or the sandbox has used up its share of the server's time. In
// the second case it returns how long to rest.
func (o *output) some() (rest time.Duration, err error) {
	r, err := o.file()
	if err != nil {
		return 0, err
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return 0, err
	}
	var end error
	err = raw.Read(func(fd uintptr) (done bool) {
		for {
			n, cost, bad := o.take(fd, 1)
			if bad != nil {
				end = bad
				return !errors.Is(bad, unix.EAGAIN)
			}
			if n < backend.WholePiece {
				cost += backend.CostPiece
			}
			if cost > 0 {
				if rest = o.effort.Spend(cost); rest > 0 {
					return true
				}
			}
		}
	})
	if err == nil && rest == 0 && !errors.Is(end, io.EOF) {
		err = end
	}
	return rest, err
}

// failed records err if it is not nil and no earlier error is recorded. It returns the recorded
// error. It waits for a read that is under way.
func (o *output) failed(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("read the program's output: %w", err)
	}
	return o.err
}

// ttyHolds is more bytes than wait in a terminal (drivers/tty: 64 KiB in tty_buffer.c, 4 KiB
// in n_tty.c).
const ttyHolds = 80 << 10

// flush copies what is in the pipe now. It waits for a read that is under way.
func (o *output) flush() error {
	var end error
	err := o.use(func(fd uintptr) {
		if o.tty { // TIOCINQ leaves out what a kernel thread has still to carry; a read does not
			_, _, end = o.take(fd, ttyHolds)
		} else if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil || n > 0 {
			_, _, end = o.take(fd, int64(max(n, 1)))
		}
	})
	if err == nil && !errors.Is(end, io.EOF) && !errors.Is(end, unix.EAGAIN) {
		err = end
	}
	return o.failed(err)
}

// flush copies what is in the streams now. If one cannot be read, it fails.
func (p *pipes) flush() error {
	var errs []error
	for _, o := range p.outputs {
		errs = append(errs, o.flush())
	}
	return errors.Join(errs...)
}

var chunks = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// private is the number of private streams of a process.
type private int

const (
	noChannel   private = iota
	channelFrom         // descriptor 3, which the process writes to
	channelBoth         // and descriptor 4, which the process reads from
)

func privateOf(p backend.Process) private { return private(p.Channels) }

// openPipes makes all streams. Output stays in them until carry is called. uid is the host user of
// the sandbox. It owns the three standard streams that are pipes, because programs may open them
// by name (/dev/stdin, /dev/stdout).
func openPipes(uid int, stdin []byte, stays bool, which private, effort *backend.Effort) (*pipes, error) {
	p := &pipes{effort: effort}
	err := p.input(uid, stdin, stays)
	if err == nil {
		err = p.output(uid)
	}
	if err == nil {
		err = p.output(uid)
	}
	for left := which; err == nil && left > noChannel; left -= channelBoth {
		err = p.private(min(left, channelBoth))
	}
	if err != nil {
		p.closeTheirs()
		p.close(0)
		return nil, err
	}
	return p, nil
}

func (p *pipes) input(uid int, data []byte, stays bool) error {
	if data == nil && !stays {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.theirs = append(p.theirs, fd)
		return err
	}
	r, w, err := pipe(1)
	if err != nil {
		return err
	}
	p.theirs, p.ours = append(p.theirs, own(r, uid)), append(p.ours, w)
	if stays {
		p.stdin = newInflow(w, data)
		return nil
	}
	p.copies.Go(func() {
		_, _ = w.Write(data) // a program need not read all of it
		_ = w.Close()
	})
	return nil
}

// carry starts to copy output to the writers, including output so far. It is called once.
func (p *pipes) carry(stdout, stderr io.Writer) {
	to := [2]io.Writer{stdout, stderr}
	for i, o := range p.outputs {
		if o.to = to[i]; o.to == nil {
			o.to = io.Discard
		}
		p.copies.Go(o.copy)
	}
}

func (p *pipes) output(uid int) error {
	w, r, err := pipe(0)
	if err != nil {
		return err
	}
	p.theirs, p.outputs = append(p.theirs, own(w, uid)), append(p.outputs, &output{inlet: newInlet(r, p.effort)})
	return nil
}

// own gives a pipe to the user of the sandbox and returns it. Otherwise programs cannot open it by
// name. A server without root is that user. fd must come from pipe: any other file may also belong
// to the host.
func own(fd, uid int) int {
	if os.Geteuid() == 0 {
		_ = unix.Fchown(fd, uid, uid)
	}
	return fd
}

// private makes the next pair of private streams, or only the first of the pair.
func (p *pipes) private(which private) error {
	w, from, err := pipe(0)
	if err != nil {
		return err
	}
	c := &channel{from: newInlet(from, p.effort)}
	p.theirs = append(p.theirs, w)
	if p.channel == nil {
		p.channel = c
	} else {
		p.further = append(p.further, c)
	}
	if which == channelBoth {
		var r int
		if r, c.to, err = pipe(1); err != nil {
			return err
		}
		p.theirs = append(p.theirs, r)
	}
	return nil
}

// pair returns pair n of the private streams, or nil.
func (p *pipes) pair(n int) *channel {
	switch {
	case n == 0:
		return p.channel
	case n > 0 && n <= len(p.further):
		return p.further[n-1]
	}
	return nil
}

// pipe makes a pipe. ours is end i of it (0 reads, 1 writes), on the runtime's poller.
func pipe(i int) (theirs int, ours *os.File, err error) {
	var fds [2]int
	if err = unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	if ours, err = jail.Polled(fds[i], "stream"); err != nil {
		_ = unix.Close(fds[1-i])
		return -1, nil, err
	}
	return fds[1-i], ours, nil
}

func (p *pipes) closeTheirs() {
	for _, fd := range p.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.theirs = nil
}

// close waits at most limit for the streams to end, and then stops all copying. Bytes that were not
// read by then are lost.
func (p *pipes) close(limit time.Duration) {
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-p.copied():
		case <-t.C:
		}
	}
	for _, f := range p.ours {
		_ = f.Close()
	}
	for _, o := range p.outputs {
		_ = o.Close()
	}
	p.hang()
}

// hang closes the channels.
func (p *pipes) hang() {
	if p.channel != nil {
		_ = p.channel.Close()
	}
	for _, c := range p.further {
		_ = c.Close()
	}
}

// drain waits for the end of the streams. If one could not be read to its end, or if ctx ends
// first, it fails.
func (p *pipes) drain(ctx context.Context) error {
	select {
	case <-p.copied():
		var errs []error
		for _, o := range p.outputs {
			errs = append(errs, o.failed(nil))
		}
		return errors.Join(errs...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copied returns a channel that is closed when every stream has been copied to its end.
func (p *pipes) copied() <-chan struct{} {
	p.once.Do(func() {
		p.done = make(chan struct{})
		go func() {
			p.copies.Wait()
			close(p.done)
		}()
	})
	return p.done
}
