package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// inlet is the server's end of a pipe that a program writes to. On the runtime's poller, each write
// of a program wakes the server. So the pipe is removed from the poller while its sandbox has used
// up its share of the server's time. The methods may be called concurrently, but only one goroutine
// may read.
type inlet struct {
	effort *backend.Effort // of the sandbox; nil: it never rests
	calls  slowCalls

	state   sync.Mutex
	r       *os.File // on the poller; guarded by state
	resting int      // descriptor of the pipe while it is off the poller, else -1; guarded by state
	closed  bool     // guarded by state
	lost    error    // why it was closed before its end, if not by Close; guarded by state
}

func newInlet(r *os.File, effort *backend.Effort) *inlet {
	return &inlet{r: r, effort: effort, resting: -1}
}

// file returns the pipe on the poller. If the kernel has refused to watch it again, file fails. It
// must not be called during a rest.
func (i *inlet) file() (*os.File, error) {
	i.state.Lock()
	defer i.state.Unlock()
	return i.r, i.lost
}

// Read reads from the pipe. If the sandbox has used up its share of the server's time, Read rests
// before it returns.
func (i *inlet) Read(p []byte) (int, error) {
	r, err := i.file()
	if err != nil {
		return 0, err
	}
	n, slow, err := i.read(r, p)
	if err != nil {
		return n, i.orClosed(err)
	}
	if rest := i.effort.Spend(backend.CostOf(n) + slow); rest > 0 {
		err = i.rest(rest)
	}
	if n > 0 {
		return n, nil // after a failed rest the next Read fails
	}
	return n, err
}

// read reads like r.Read. slow is what the kernel took beyond the usual, without the wait
// for something to read.
func (i *inlet) read(r *os.File, p []byte) (n int, slow time.Duration, err error) {
	raw, err := r.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var end error
	err = raw.Read(func(fd uintptr) (done bool) {
		for {
			slow += i.calls.do(func() { n, end = unix.Read(int(fd), p) })
			if !errors.Is(end, unix.EINTR) {
				return !errors.Is(end, unix.EAGAIN)
			}
		}
	})
	switch {
	case err != nil:
		return 0, slow, err
	case end != nil:
		return 0, slow, end
	case n == 0 && len(p) > 0:
		return 0, slow, io.EOF
	}
	return n, slow, nil
}

// orClosed returns os.ErrClosed if the pipe was closed, and otherwise err.
func (i *inlet) orClosed(err error) error {
	i.state.Lock()
	defer i.state.Unlock()
	if i.closed && i.lost == nil && !errors.Is(err, io.EOF) {
		return os.ErrClosed
	}
	return err
}

// rest waits for d, off the poller. If the pipe is closed meanwhile, it fails with
// os.ErrClosed. If the kernel refuses to watch the pipe again, it closes the pipe and
// fails.
func (i *inlet) rest(d time.Duration) error {
	i.state.Lock()
	if i.closed {
		i.state.Unlock()
		return os.ErrClosed
	}
	fd, err := dup(i.r)
	if err != nil { // without a second descriptor, the pipe stays on the poller during the rest
		i.state.Unlock()
		i.effort.Rest(d)
		return nil
	}
	_ = i.r.Close()
	i.resting = fd
	i.state.Unlock()

	i.effort.Rest(d)

	i.state.Lock()
	defer i.state.Unlock()
	if i.closed { // Close has closed the resting descriptor
		return os.ErrClosed
	}
	r, err := jail.Polled(fd, "stream")
	i.resting = -1
	if err != nil {
		i.closed, i.lost = true, err
		return err
	}
	i.r = r
	return nil
}

// dup returns a duplicate of a file's descriptor.
func dup(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(failed, err)
}

// use calls do with the pipe's descriptor, also during a rest. Once the pipe is closed, it fails
// with os.ErrClosed.
func (i *inlet) use(do func(fd uintptr)) error {
	i.state.Lock()
	defer i.state.Unlock()
	if i.closed {
		return os.ErrClosed
	}
	if i.resting >= 0 {
		do(uintptr(i.resting))
		return nil
	}
	raw, err := i.r.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(do)
}

// Close closes the pipe and ends a waiting Read. It may be called more than once. It waits for a read that the
// kernel makes, which a program can delay by holding the lock of the pipe.
func (i *inlet) Close() error {
	i.state.Lock()
	if i.closed {
		i.state.Unlock()
		return nil
	}
	i.closed = true
	r, resting := i.r, i.resting
	i.state.Unlock()
	err := r.Close()
	if resting >= 0 {
		err = unix.Close(resting)
	}
	return err
}
