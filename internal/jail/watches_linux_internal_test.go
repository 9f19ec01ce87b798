package jail

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// adds prints a line for each epoll watch that it has added.
const adds = `
import select, os, sys
event, sets = os.eventfd(0), []
for n in range(1, 200):
    sets.append(select.epoll())
    sets[-1].register(event, select.EPOLLIN)
    print(n, flush=True)
`

// adding starts such a program, and returns what it prints.
func adding(t *testing.T, s *Slot) (*Proc, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = null.Close(), w.Close() }()
	p, err := s.Start(Command{Argv: []string{systemPython(t), "-S", "-I", "-c", adds}, Dir: "/", Files: []int{int(null.Fd()), int(w.Fd()), int(w.Fd())}})
	if err != nil {
		t.Fatal(err)
	}
	return p, bufio.NewReader(r)
}

// upTo reads lines until the program has added n watches.
func upTo(t *testing.T, out *bufio.Reader, n int) {
	t.Helper()
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("before %d watches were added: got %v", n, err)
		}
		if strings.TrimSpace(line) == strconv.Itoa(n) {
			return
		}
	}
}

// waiting reports whether the only process besides init waits in a system call that is not a write.
func waiting(s *Slot) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/task/" + strconv.Itoa(s.PID()) + "/children")
	if err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/wchan")
	return err == nil && strings.Contains(string(stat), "seccomp")
}

// TestWatchesWaitForAGrant: programs add as many watches as were granted and no more, and the
// server is asked before none is left.
func TestWatchesWaitForAGrant(t *testing.T) {
	j := noticing(t)
	s := made(t, j)
	defer func() { _ = s.Close() }()
	asked := make(chan struct{}, 9)
	p, out := adding(t, s)
	upTo(t, out, FirstWatches)
	s.OnWatches(func() { asked <- struct{}{} })
	<-asked // it was asked for when half were left
	testkit.Until(t, "the program waits", func() bool { return waiting(s) })
	if n := out.Buffered(); n != 0 {
		t.Errorf("after %d watches: got %d more bytes of output, want none", FirstWatches, n)
	}
	if err := s.Grant(4); err != nil {
		t.Fatal(err)
	}
	upTo(t, out, FirstWatches+4)
	<-asked
	testkit.Until(t, "the program waits again", func() bool { return waiting(s) })
	if err := s.Grant(1000); err != nil {
		t.Fatal(err)
	}
	upTo(t, out, 199)
	<-p.Done()
	if e, err := p.Exit(); err != nil || e.Status.ExitStatus() != 0 {
		t.Errorf("got %v, %v; want exit 0", e.Status, err)
	}
}

// TestAProgramThatWaitsForAGrantCanBeEnded: by a signal, with the others of its sandbox, and with
// its sandbox. The sandbox can be used afterwards.
func TestAProgramThatWaitsForAGrantCanBeEnded(t *testing.T) {
	j := noticing(t)
	s := made(t, j)
	closed := false
	defer func() {
		if !closed {
			_ = s.Close()
		}
	}()
	for name, end := range map[string]func(p *Proc) error{
		"Signal": func(p *Proc) error { return p.Signal(int(unix.SIGTERM)) },
		"Clear": func(*Proc) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return s.Clear(ctx)
		},
	} {
		p, out := adding(t, s)
		testkit.Until(t, "the program waits", func() bool { return waiting(s) })
		if err := end(p); err != nil {
			t.Errorf("%s: got %v, want nil", name, err)
		}
		<-p.Done()
		_, _ = io.Copy(io.Discard, out)
	}
	if err := s.Grant(1000); err != nil { // the first call that waited is gone
		t.Fatal(err)
	}
	p, out := adding(t, s)
	upTo(t, out, 199)
	<-p.Done()
	if err := s.Grant(2); err != nil {
		t.Fatal(err)
	}
	_, _ = adding(t, s)
	testkit.Until(t, "the program waits", func() bool { return waiting(s) })
	closed = true
	if err := s.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
}

// TestAGroupHasASignalWhenItIsSent: SignalGroup waits until init has sent the signal, but no longer than its context says.
func TestAGroupHasASignalWhenItIsSent(t *testing.T) {
	s := made(t, noticing(t))
	defer func() { _ = s.Close() }()
	p, _ := adding(t, s)
	testkit.Until(t, "the program waits", func() bool { return waiting(s) })
	if err := unix.PidfdSendSignal(s.pidfd, unix.SIGSTOP, nil, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := p.SignalGroup(ctx, int(unix.SIGTERM))
	if cont := unix.PidfdSendSignal(s.pidfd, unix.SIGCONT, nil, 0); cont != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("init is stopped: got %v, %v, want %v", err, cont, context.DeadlineExceeded)
	}
	<-p.Done()
}
