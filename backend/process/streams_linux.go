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

// pipes are a process's streams: the ends that the process gets, and the copies to and
// from the server's ends.
type pipes struct {
	theirs  []int      // become 0, 1, 2, 3 …
	channel *channel   // descriptors 3 and 4; nil when there is none
	further []*channel // descriptors 5 and 6, and so on
	copies  sync.WaitGroup
	ours    []*os.File
	stdin   *inflow // nil: it does not stay open
	outputs []*output
	effort  *backend.Effort // of the sandbox

	once sync.Once
	done chan struct{} // closed when every stream has been copied to its end; see copied
}

// channel is the server's side of a pair of a process's private streams. They are pipes
// and not a socket, because a socket carries descriptors: the kernel would close
// one that a program sends in the server's thread, and a socket that lingers
// blocks its closer for as long as the program likes.
type channel struct {
	from *inlet   // the first descriptor of the pair
	to   *os.File // the second; nil: the process has none
}

func (c *channel) Read(p []byte) (int, error) { return c.from.Read(p) }

func (c *channel) Write(p []byte) (int, error) {
	if c.to == nil {
		return 0, os.ErrClosed
	}
	return c.to.Write(p)
}

// mute closes the direction to the process.
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

// output carries one stream to its writer.
type output struct {
	*inlet

	to  io.Writer
	tty bool       // it is a terminal
	mu  sync.Mutex // held from before a read until its bytes are with the writer
	err error      // why the stream was not read to its end; guarded by mu
}

// take reads what is there and hands it on, until it has at least limit bytes. slow is
// what the kernel took for it beyond the usual. The error is io.EOF at the end of the
// stream, and unix.EAGAIN while there is no more.
func (o *output) take(fd uintptr, limit int64) (taken int64, slow time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool holds nothing else
	defer chunks.Put(b)
	for taken < limit {
		began := time.Now()
		n, err := unix.Read(int(fd), *b)
		slow += backend.CostOfCall(time.Since(began))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n == 0 && err == nil, o.tty && errors.Is(err, unix.EIO): // no program has the terminal any more
			return taken, slow, io.EOF
		case err != nil:
			return taken, slow, err
		}
		_, _ = o.to.Write((*b)[:n])
		taken += int64(n)
	}
	return taken, slow, nil
}

// copy carries everything until the stream ends. It notes any other end as o.err.
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

// some carries what comes until the stream ends or the sandbox has used up its share of
// the server. In the second case it returns how long to rest.
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

// failed notes err, unless it is nil or an earlier error is noted. It returns the noted
// error. It waits for a read that is going on.
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

// flush carries what is in the pipe now. It waits for a read that is going on.
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

// flush hands on what is in the streams now. It fails where one cannot be read.
func (p *pipes) flush() error {
	var errs []error
	for _, o := range p.outputs {
		errs = append(errs, o.flush())
	}
	return errors.Join(errs...)
}

var chunks = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// private says how many private streams a process has.
type private int

const (
	noChannel   private = iota
	channelFrom         // descriptor 3, which it writes to
	channelBoth         // and descriptor 4, which it reads from
)

func privateOf(p backend.Process) private { return private(p.Channels) }

// openPipes makes all streams. Output waits in them until carry. uid is the host user
// of the sandbox: its programs may reopen their streams by name only if these belong to
// it.
func openPipes(uid int, stdin []byte, stays bool, which private, effort *backend.Effort) (*pipes, error) {
	p := &pipes{effort: effort}
	err := p.input(stdin, stays)
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

func (p *pipes) input(data []byte, stays bool) error {
	if data == nil && !stays {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.theirs = append(p.theirs, fd)
		return err
	}
	r, w, err := pipe(1)
	if err != nil {
		return err
	}
	p.theirs, p.ours = append(p.theirs, r), append(p.ours, w)
	if stays {
		p.stdin = newInflow(w, data)
		return nil
	}
	p.copies.Go(func() {
		_, _ = w.Write(data) // a program that does not read it all is no failure of ours
		_ = w.Close()
	})
	return nil
}

// carry begins to hand on what is written, and what was so far. It is called once.
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
	if os.Geteuid() == 0 {
		_ = unix.Fchown(w, uid, uid) // so that /dev/stdout can be opened
	}
	p.theirs, p.outputs = append(p.theirs, w), append(p.outputs, &output{inlet: newInlet(r, p.effort)})
	return nil
}

// private makes the next pair of private streams, or the first of the pair alone.
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

// pair returns a pair of private streams; nil if there is none.
func (p *pipes) pair(n int) *channel {
	switch {
	case n == 0:
		return p.channel
	case n > 0 && n <= len(p.further):
		return p.further[n-1]
	}
	return nil
}

// pipe makes a pipe; ours is its end number i, on the runtime's poller.
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

// close gives the streams limit to come to their end and then ends all copying;
// what has not been read by then is lost.
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

// drain waits for the end of the streams. It fails where one could not be read
// to its end.
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

// copied is closed when every stream has been copied to its end.
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
