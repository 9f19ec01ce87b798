package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// unreadable is a descriptor that opens and cannot be read.
func unreadable(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestDrainAndFlushTellAReadError: any end of a stream but end of file is an error.
func TestDrainAndFlushTellAReadError(t *testing.T) {
	var out bytes.Buffer
	p := &pipes{outputs: []*output{{inlet: newInlet(unreadable(t), nil)}}}
	p.carry(&out, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.drain(ctx); !errors.Is(err, unix.EISDIR) {
		t.Errorf("drain: got %v, want %v", err, unix.EISDIR)
	}
	if err := p.flush(); !errors.Is(err, unix.EISDIR) {
		t.Errorf("flush: got %v, want %v", err, unix.EISDIR)
	}
}

// TestFlushEndsWithItsContext: a read that a program keeps from its end does not keep Flush.
func TestFlushEndsWithItsContext(t *testing.T) {
	p, err := openPipes(os.Geteuid(), nil, false, noChannel, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(0)
	defer p.closeTheirs()
	p.outputs[0].mu.Lock() // as during a read
	defer p.outputs[0].mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := (&running{pipes: p}).Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

// TestDrainSucceedsAtTheEndOfTheStreams: end of file is no error.
func TestDrainSucceedsAtTheEndOfTheStreams(t *testing.T) {
	p, err := openPipes(os.Geteuid(), nil, false, channelBoth, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(0)
	var out bytes.Buffer
	p.carry(&out, &out)
	if _, err := unix.Write(p.theirs[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	p.closeTheirs()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := errors.Join(p.drain(ctx), p.flush()); err != nil || out.String() != "x" {
		t.Errorf("got %q and %v, want x and no error", out.String(), err)
	}
}

// TestADescriptorThatIsNotWatchedIsNotHandedOut: the runtime keeps such a
// descriptor without a word and fails each read that has to wait. Here the kernel
// refuses it for its kind, and not because watches are used up.
func TestADescriptorThatIsNotWatchedIsNotHandedOut(t *testing.T) {
	name := t.TempDir() + "/f"
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := jail.Polled(fd, "file"); !errors.Is(err, jail.ErrNotPolled) {
		t.Errorf("got %v and %v, want %v", f, err, jail.ErrNotPolled)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("the descriptor is still open: got %v, want %v", err, unix.EBADF)
	}
}

// TestNoStreamOfAProcessIsASocket: a socket would carry descriptors to the
// server, which the kernel closes there.
func TestNoStreamOfAProcessIsASocket(t *testing.T) {
	for which := noChannel; which <= backend.MaxChannels; which++ {
		p, err := openPipes(os.Geteuid(), make([]byte, 1<<20), false, which, nil) // more than fits, so that it stays open
		if err != nil {
			t.Fatal(err)
		}
		ours := p.ours
		for pair := 0; p.pair(pair) != nil; pair++ {
			c := p.pair(pair)
			ours = append(ours, c.from.r)
			if c.to != nil {
				ours = append(ours, c.to)
			}
		}
		if got, want := len(p.theirs), 3+int(which); got != want {
			t.Errorf("with %d channels: got %d descriptors, want %d", which, got, want)
		}
		fds := p.theirs
		for _, f := range ours {
			raw, err := f.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, fd := range fds {
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				t.Fatal(err)
			}
			if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFIFO {
				t.Errorf("channel %d: a stream has the kind %s, want a pipe", which, strings.TrimSpace(os.FileMode(kind).String()))
			}
		}
		p.closeTheirs()
		p.close(0)
	}
}

// worker is a writer that needs a processor for each call, as one that masks secrets does.
type worker struct{}

func (worker) Write(p []byte) (int, error) {
	for began := threadTime(); threadTime()-began < 2*time.Millisecond; {
	}
	return len(p), nil
}

// TestAWriterThatWorksCosts: what the writer of a stream needs of a processor is taken from the
// sandbox's share of the server's time, from the second piece on.
func TestAWriterThatWorksCosts(t *testing.T) {
	p, err := openPipes(os.Geteuid(), nil, false, noChannel, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(0)
	defer p.closeTheirs()
	o, fd := p.outputs[0], p.theirs[1]
	o.to = worker{}
	var cost [2]time.Duration
	for i := range cost {
		if _, err := unix.Write(fd, make([]byte, backend.WholePiece)); err != nil {
			t.Fatal(err)
		}
		err := o.use(func(fd uintptr) { _, cost[i], _ = o.take(fd, 1) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if cost[1] < 2*time.Millisecond {
		t.Errorf("the second piece: got a cost of %v, want 2ms or more", cost[1])
	}
}
