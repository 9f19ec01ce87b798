package process

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// pipes are a process's streams: the ends that it gets, and what carries bytes
// to and from ours.
type pipes struct {
	theirs  []int    // become 0, 1, 2 and, with a channel, 3
	channel *os.File // ours; nil when there is none
	copies  sync.WaitGroup
	ours    []*os.File
	outputs []*output
	effort  *backend.Effort // of the sandbox

	once sync.Once
	done chan struct{} // closed when every stream has been copied to its end; see copied
}

// output carries one stream to its writer. While it rests, the pipe is taken off
// the runtime's poller, which every write of a program would wake otherwise,
// however long nothing is read.
type output struct {
	to     io.Writer
	effort *backend.Effort // of the sandbox

	mu sync.Mutex // held from before a read until its bytes are with the writer

	state   sync.Mutex
	r       *os.File // on the poller; guarded by state
	resting int      // the pipe while it is not on the poller; -1: it is; guarded by state
	closed  bool     // guarded by state
}

// take reads what is there, at most limit bytes and what comes with the last of
// them, and hands it on. io.EOF: the stream has ended; unix.EAGAIN: there is no
// more now.
func (o *output) take(fd uintptr, limit int64) (taken int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool holds nothing else
	defer chunks.Put(b)
	for taken < limit {
		n, err := unix.Read(int(fd), *b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return taken, err
		case n == 0:
			return taken, io.EOF
		}
		_, _ = o.to.Write((*b)[:n])
		taken += int64(n)
	}
	return taken, nil
}

// copy carries everything until the stream ends.
func (o *output) copy() {
	for {
		rest := o.some()
		if rest == 0 || !o.sleep(rest) {
			return
		}
	}
}

// some carries what comes, until the stream has ended or the sandbox has used up
// its share of the server: then it returns how long to rest.
func (o *output) some() (rest time.Duration) {
	raw, err := o.file().SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) (done bool) {
		for {
			n, err := o.take(fd, 1)
			if err != nil {
				return !errors.Is(err, unix.EAGAIN)
			}
			if n < backend.WholePiece {
				if rest = o.effort.Spend(backend.CostPiece); rest > 0 {
					return true
				}
			}
		}
	})
	return rest
}

// sleep rests. It reports false once the stream has been closed, or cannot be
// read any more.
func (o *output) sleep(rest time.Duration) bool {
	o.state.Lock()
	if o.closed {
		o.state.Unlock()
		return false
	}
	fd, err := dup(o.r)
	if err != nil { // it rests on the poller
		o.state.Unlock()
		o.effort.Rest(rest)
		return true
	}
	_ = o.r.Close()
	o.resting = fd
	o.state.Unlock()

	o.effort.Rest(rest)

	o.state.Lock()
	defer o.state.Unlock()
	if o.closed { // and with it what rested
		return false
	}
	o.r, o.resting = os.NewFile(uintptr(fd), "stream"), -1
	return true
}

// dup returns another descriptor of a file.
func dup(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(failed, err)
}

func (o *output) file() *os.File {
	o.state.Lock()
	defer o.state.Unlock()
	return o.r
}

// close ends the copying.
func (o *output) close() {
	o.state.Lock()
	defer o.state.Unlock()
	if o.closed {
		return
	}
	o.closed = true
	_ = o.r.Close()
	if o.resting >= 0 {
		_ = unix.Close(o.resting)
	}
}

// flush carries what is in the pipe now.
func (o *output) flush() {
	o.state.Lock()
	defer o.state.Unlock()
	if o.closed {
		return
	}
	now := func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil && n > 0 {
			_, _ = o.take(fd, int64(n))
			return
		}
		o.mu.Lock() // what another one has just read is on its way
		defer o.mu.Unlock()
	}
	if o.resting >= 0 {
		now(uintptr(o.resting))
		return
	}
	raw, err := o.r.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(now)
}

// flush hands on what is in the streams now.
func (p *pipes) flush() {
	for _, o := range p.outputs {
		o.flush()
	}
}

var chunks = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// open makes all streams, whose output goes nowhere until carry. uid is the host
// user of the sandbox: its programs may reopen their streams by name only when
// these belong to it.
func openPipes(uid int, stdin []byte, channel bool) (*pipes, error) {
	p := &pipes{}
	err := p.input(stdin)
	if err == nil {
		err = p.output(uid)
	}
	if err == nil {
		err = p.output(uid)
	}
	if err == nil && channel {
		err = p.private()
	}
	if err != nil {
		p.closeTheirs()
		p.close(0)
		return nil, err
	}
	return p, nil
}

func (p *pipes) input(data []byte) error {
	if data == nil {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.theirs = append(p.theirs, fd)
		return err
	}
	r, w, err := pipe(1)
	if err != nil {
		return err
	}
	p.theirs, p.ours = append(p.theirs, r), append(p.ours, w)
	p.copies.Go(func() {
		_, _ = w.Write(data) // a program that does not read it all is no failure of ours
		_ = w.Close()
	})
	return nil
}

// carry begins to hand on what is written, and what was so far. It is called once.
func (p *pipes) carry(to ...io.Writer) {
	for i, o := range p.outputs {
		if o.to = to[i]; o.to == nil { //nolint:gosec // G602: a writer for each
			o.to = io.Discard
		}
		o.effort = p.effort
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
	p.theirs, p.outputs = append(p.theirs, w), append(p.outputs, &output{r: r, resting: -1})
	return nil
}

func (p *pipes) private() error {
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.theirs = append(p.theirs, s[1])
	if err := unix.SetNonblock(s[0], true); err != nil {
		_ = unix.Close(s[0])
		return err
	}
	p.channel = os.NewFile(uintptr(s[0]), "channel")
	return nil
}

// pipe makes a pipe; ours is its end number i, on the runtime's poller.
func pipe(i int) (theirs int, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	if err := unix.SetNonblock(fds[i], true); err != nil {
		_ = errors.Join(unix.Close(fds[0]), unix.Close(fds[1]))
		return -1, nil, err
	}
	return fds[1-i], os.NewFile(uintptr(fds[i]), "stream"), nil
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
		o.close()
	}
	if p.channel != nil {
		_ = p.channel.Close()
	}
}

// drain waits for the end of the streams.
func (p *pipes) drain(ctx context.Context) error {
	select {
	case <-p.copied():
		return nil
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

// pacedChannel is our end of a private stream. A program that talks on it
// without end is read no faster than its sandbox's share of the server allows.
type pacedChannel struct {
	io.ReadWriteCloser
	effort *backend.Effort
}

// Read reads what is there. The rest after a read comes before the next one.
func (c pacedChannel) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if err == nil {
		c.effort.Pace(backend.CostOf(n))
	}
	return n, err
}
