package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// restful is a clock that passes only while something rests.
type restful struct {
	mu     sync.Mutex
	at     time.Time
	rested time.Duration
	rests  int
	during func() // called in each rest
}

func (c *restful) effort() *backend.Effort {
	c.at = time.Unix(1, 0)
	return backend.NewEffortAt(func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.at
	}, func(d time.Duration, _ <-chan struct{}) {
		c.mu.Lock()
		c.at, c.rested, c.rests = c.at.Add(d), c.rested+d, c.rests+1
		during := c.during
		c.mu.Unlock()
		if during != nil {
			during()
		}
	})
}

// writes counts the pieces that a stream is handed on in.
type writes struct {
	bytes.Buffer
	pieces int
}

func (w *writes) Write(p []byte) (int, error) {
	w.pieces++
	return w.Buffer.Write(p)
}

// tally counts bytes and small pieces, which cost a sandbox something. It keeps none, because a growing buffer
// takes processor time that counts as the sandbox's.
type tally struct{ bytes, small int }

func (w *tally) Write(p []byte) (int, error) {
	w.bytes += len(p)
	if len(p) < backend.WholePiece {
		w.small++
	}
	return len(p), nil
}

// streamed copies a pipe to a writer until done is called.
func streamed(t *testing.T, e *backend.Effort, to io.Writer) (p *pipes, write func([]byte), done func()) {
	t.Helper()
	p = &pipes{effort: e}
	if err := p.output(-1); err != nil {
		t.Fatal(err)
	}
	p.carry(to, nil)
	end := p.theirs[0]
	return p, func(b []byte) {
			for len(b) > 0 {
				n, err := unix.Write(end, b)
				if err != nil {
					t.Fatal(err)
				}
				b = b[n:]
			}
		}, func() {
			p.closeTheirs()
			<-p.copied()
			p.close(0)
		}
}

// TestAStreamOfSingleBytesRests: its pieces cost no more than the sandbox's share
// of the server, and every byte arrives in order.
func TestAStreamOfSingleBytesRests(t *testing.T) {
	c := &restful{}
	w := &writes{}
	_, write, done := streamed(t, c.effort(), w)
	want := make([]byte, 300_000)
	for i := range want {
		want[i] = byte('a' + i%26)
		write(want[i : i+1])
	}
	done()
	if !bytes.Equal(w.Bytes(), want) {
		t.Errorf("%d bytes arrived of %d, or in another order", w.Len(), len(want))
	}
	cost := time.Duration(w.pieces) * backend.CostPiece
	free := backend.EffortBurst + time.Duration(backend.EffortShare*float64(c.rested)) + 200*backend.CostPiece // the last, in large pieces
	if cost > free {
		t.Errorf("%d pieces cost %v while it rested %v, want at most %v", w.pieces, cost, c.rested, free)
	}
}

// TestAnHonestStreamDoesNotRest: copying 100 MB in pieces of 64 KiB never rests. On a busy machine the pieces may
// arrive in parts. It may rest if the small ones cost more than a sandbox may cause at once.
func TestAnHonestStreamDoesNotRest(t *testing.T) {
	c := &restful{}
	w := &tally{}
	_, write, done := streamed(t, c.effort(), w)
	piece := bytes.Repeat([]byte("x"), 64<<10)
	writes := 100_000_000 / len(piece)
	free := int(backend.EffortBurst / backend.CostPiece)
	for range writes {
		write(piece)
	}
	done()
	if want := writes * len(piece); w.bytes != want || c.rests > 0 && w.small <= free {
		t.Errorf("%d bytes, %d small pieces and %d rests; want %d bytes and no rest", w.bytes, w.small, c.rests, want)
	}
}

// TestAStreamThatRestsIsFlushedAndClosed: a flush delivers all bytes written before
// it, and a close during a rest ends the copying.
func TestAStreamThatRestsIsFlushedAndClosed(t *testing.T) {
	c := &restful{}
	resting, on := make(chan struct{}), make(chan struct{})
	c.during = func() {
		resting <- struct{}{}
		<-on
	}
	e := c.effort()
	e.Spend(backend.EffortBurst)
	w := &writes{}
	p, write, _ := streamed(t, e, w)
	write([]byte("one "))
	<-resting
	write([]byte("two"))
	if err := p.flush(); err != nil {
		t.Error(err)
	}
	if got := w.String(); got != "one two" {
		t.Errorf("after a flush in its rest: got %q, want %q", got, "one two")
	}
	p.close(0)
	close(on)
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	select {
	case <-p.copied():
	case <-end.C:
		t.Error("the copying goes on after the close, want its end")
	}
	p.closeTheirs()
}

// TestAChannelThatNeverEndsRests: the server reads frames and junk no faster than the
// sandbox's share of the server allows.
func TestAChannelThatNeverEndsRests(t *testing.T) {
	for _, size := range []int{4, 20, 32 << 10} {
		theirs, ours, err := pipe(0)
		if err != nil {
			t.Fatal(err)
		}
		flood := make(chan struct{})
		go func() { // ends when the other end is closed
			defer close(flood)
			for piece := make([]byte, 20); ; {
				if _, err := unix.Write(theirs, piece); err != nil {
					return
				}
			}
		}()
		c, reads := &restful{}, 0
		in := newInlet(ours, c.effort())
		for b := make([]byte, size); c.rested < time.Minute; reads++ {
			if _, err := in.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		if most := int((backend.EffortBurst+6*time.Second)/backend.CostRead) + 100; reads > most {
			t.Errorf("got %d reads of at most %d bytes in a minute, want at most %d", reads, size, most)
		}
		_ = in.Close()
		<-flood
		_ = unix.Close(theirs)
	}
}

// TestAClosedChannelEndsItsRest: a read that rests ends with the channel.
func TestAClosedChannelEndsItsRest(t *testing.T) {
	theirs, ours, err := pipe(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(theirs) }()
	c := &restful{}
	in := newInlet(ours, c.effort())
	c.during = func() { _ = in.Close() }
	in.effort.Spend(backend.EffortBurst)
	if _, err := unix.Write(theirs, []byte("frame")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := in.Read(b); n != 5 || err != nil {
		t.Errorf("the read before the rest: got %d, %v; want 5 bytes", n, err)
	}
	if _, err := in.Read(b); err == nil {
		t.Error("a read of the closed channel: got no error")
	}
}

// TestAPipeThatCannotBeWatchedAfterARestTellsSo: the read error is returned as such, and not
// as a close, which would look like an end by the server.
func TestAPipeThatCannotBeWatchedAfterARestTellsSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f") // opens, can be read, and is never watched
	if err := os.WriteFile(file, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	e := (&restful{}).effort()
	e.Spend(2 * backend.EffortBurst)
	in := newInlet(f, e)
	if n, err := in.Read(make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("what was there: got %d bytes, %v, want 10", n, err)
	}
	for range 2 {
		if n, err := in.Read(make([]byte, 10)); n != 0 || !errors.Is(err, jail.ErrNotPolled) || errors.Is(err, os.ErrClosed) {
			t.Errorf("after it: got %d bytes, %v, want %v", n, err, jail.ErrNotPolled)
		}
	}
	if err := in.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
}
