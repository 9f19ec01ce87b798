package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

func starts(f *fake) (programs []string) {
	for _, p := range f.packets() {
		if p.kind == 'S' {
			text := strings.Split(string(p.raw[32+8*16+maxFiles:]), "\x00")
			programs = append(programs, text[1])
		}
	}
	return programs
}

// TestWallsAreObservedBeforePrograms: no program is started before the relay's own has observed the walls.
func TestWallsAreObservedBeforePrograms(t *testing.T) {
	s, f := openFake(t, func(p packet) *reported {
		if p.kind == 'S' {
			return &reported{results: []int64{-1}}
		}
		return nil
	})
	s.first = nil
	if _, err := s.Start(t.Context(), backend.Process{Argv: []string{"/program"}}); !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v, want %v", err, syscall.EPERM)
	}
	if got := starts(f); !slices.Equal(got, []string{"/relay"}) {
		t.Errorf("started %q, want the relay alone", got)
	}
}

// TestWallsAreNotObservedBesidePrograms: while programs run, nothing in the sandbox is asked for its walls.
// The wall of the network is the present one.
func TestWallsAreNotObservedBesidePrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t, nil)
		if _, err := s.Start(t.Context(), backend.Process{Argv: []string{"/program"}}); err != nil {
			t.Fatal(err)
		}
		states := []func(){func() {}, func() { s.network.out = &backend.Network{} }, func() { s.network.leads = true }}
		for i, want := range []string{sandboxmcp.WallNoNetwork, sandboxmcp.WallToldNames, sandboxmcp.WallEgress} {
			states[i]()
			iso, err := s.Isolation(t.Context())
			if err != nil || iso.Kernel != "seen" || !slices.Equal(iso.Walls, []string{want}) {
				t.Errorf("got %+v %v, want the first observation and the wall %q", iso, err, want)
			}
		}
		if got := starts(f); !slices.Equal(got, []string{"/program"}) {
			t.Errorf("started %q, want the program alone", got)
		}
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Isolation(t.Context()); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Kill: got %v, want %v", err, fs.ErrClosed)
		}
	})
}

// TestKillEndsWhereNothingIsAnswered: a relay that does not stop a list is given up.
func TestKillEndsWhereNothingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openFake(t, func(p packet) *reported {
			if p.kind == 'Z' {
				return &reported{silent: true}
			}
			return nil
		})
		n, err := s.Network(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := n.TCP[80].Accept()
			accepted <- err
		}()
		synctest.Wait()
		if err := s.Kill(t.Context()); err != nil {
			t.Errorf("Kill: %v", err)
		}
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: got %v, want %v", err, net.ErrClosed)
		}
		<-s.Gone()
	})
}

// TestKillAndCloseEndWhereNothingIsRead: a relay that reads nothing is given up.
func TestKillAndCloseEndWhereNothingIsRead(t *testing.T) {
	for name, end := range map[string]func(*Sandbox, context.Context) error{
		"Kill": (*Sandbox).Kill, "Close": (*Sandbox).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			s, _ := openFake(t, func(p packet) *reported {
				if slices.Equal(p.calls, []string{"close"}) {
					<-stuck
				}
				return nil
			})
			s.c.drop(1001)
			synctest.Wait()
			if err := end(s, t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			<-s.Gone()
			close(stuck)
		})
	}
}

// TestOutputOfALostContainer: if a container ends, the output of a program that was lost with it has
// ended. That of a program which had ended before was not read to its end.
func TestOutputOfALostContainer(t *testing.T) {
	for name, before := range map[string]bool{"lost": false, "ended before": true} {
		synctest.Test(t, func(t *testing.T) {
			s, f := openFake(t, nil)
			r, err := s.Start(t.Context(), backend.Process{Argv: []string{"/bin/x"}})
			if err != nil {
				t.Fatal(err)
			}
			if before {
				pid := r.(*running).pid //nolint:forcetypeassert // it is one
				_, _ = f.stream.Write(words(24, 'X', uint32(pid), 0, 0, 0))
				if e, err := r.Wait(t.Context()); err != nil || e.Lost {
					t.Fatalf("%s: got %+v %v, want an end", name, e, err)
				}
			}
			_ = f.stream.Close()
			err = r.Drain(t.Context())
			if before != errors.Is(err, errGone) {
				t.Errorf("%s: Drain: got %v", name, err)
			}
			if e, err := r.Wait(t.Context()); err != nil || e.Lost == before {
				t.Errorf("%s: Wait: got %+v %v", name, e, err)
			}
		})
	}
}

// TestStartAfterKill: a program whose start the relay carries out after Kill is ended, and Start fails.
func TestStartAfterKill(t *testing.T) {
	var s *Sandbox
	s, f := openFake(t, func(p packet) *reported {
		if p.kind == 'S' {
			s.mu.Lock()
			s.killed = true
			s.mu.Unlock()
		}
		return nil
	})
	r, err := s.Start(t.Context(), backend.Process{Argv: []string{"/program"}})
	if !errors.Is(err, fs.ErrClosed) || r != nil {
		t.Errorf("got %v %v, want %v", r, err, fs.ErrClosed)
	}
	cleared := false
	for _, p := range f.packets() {
		cleared = cleared && p.kind != 'S' || p.kind == 'C'
	}
	if !cleared {
		t.Error("nothing ended the program")
	}
	if len(s.all) != 0 {
		t.Errorf("%d programs are kept, want none", len(s.all))
	}
}

// TestStartBesideClose: with -race, neither sees the other's list of programs.
func TestStartBesideClose(t *testing.T) {
	for range 20 {
		s, _ := openFake(t, func(p packet) *reported {
			if p.kind == 'Y' && p.fd >= 0 && len(p.calls) == 1 && p.calls[0] == "read" {
				return &reported{results: []int64{0}} // each stream ends at once
			}
			return nil
		})
		if _, err := s.Start(t.Context(), backend.Process{Argv: []string{"/first"}}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 4 {
					r, err := s.Start(t.Context(), backend.Process{Argv: []string{"/program"}})
					if err != nil {
						return
					}
					r.(*running).finish(lost) //nolint:forcetypeassert // it is one
				}
			})
		}
		all.Go(func() { _ = s.Close(t.Context()) })
		all.Wait()
		if len(s.all) != 0 {
			t.Errorf("%d programs are kept after Close, want none", len(s.all))
		}
	}
}

// TestShortAnswersFail: an answer with fewer results or bytes than were asked for is an error.
func TestShortAnswersFail(t *testing.T) {
	for _, cut := range []reported{{}, {results: []int64{0}}, {results: make([]int64, 1), bytes: make([]byte, 3)}, {results: make([]int64, 2)}, {results: make([]int64, 4)}, {results: make([]int64, 4), bytes: make([]byte, 80)}} {
		var short atomic.Bool
		s, _ := openFake(t, func(p packet) *reported {
			if short.Load() && p.kind == 'Y' && (len(p.calls) > 1 || p.size > 0) {
				return &cut
			}
			return nil
		})
		n, err := s.Network(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		short.Store(true)
		wrong := func(what string, err error) {
			if err == nil {
				t.Errorf("%s: an answer of %d results and %d bytes is accepted", what, len(cut.results), len(cut.bytes))
			}
		}
		_, err = n.TCP[80].Accept()
		wrong("Accept", err)
		_, _, err = n.DNS[0].ReadFrom(make([]byte, 100))
		wrong("ReadFrom", err)
		if len(cut.results) != 2 { // it makes two calls, and may have connected
			_, err = s.Dial(t.Context(), 80)
			wrong("Dial", err)
		}
		_, err = s.Files().Open(t.Context(), "x")
		wrong("Open", err)
		_, err = s.Files().Stat(t.Context(), "x")
		wrong("Stat", err)
		wrong("Mkdir", s.Files().Mkdir(t.Context(), "x/y"))
		wrong("Put", s.Files().Put(t.Context(), "x", []byte("x"), true))
		wrong("Rename", s.Files().Rename(t.Context(), "x", "y", true))
		if len(cut.results) != 4 || len(cut.bytes) > 0 { // an empty directory
			_, _, err = s.Files().List(t.Context(), "x", 10)
			wrong("List", err)
		}
		if len(cut.results) != 1 {
			_, err = s.c.look()
			wrong("look", err)
		}
	}
}

// TestAcceptedConnectionsAreClosed: if the address of an accepted connection cannot be read, it is closed,
// and the next one is accepted.
func TestAcceptedConnectionsAreClosed(t *testing.T) {
	asked := 0
	s, f := openFake(t, func(p packet) *reported {
		if len(p.calls) != 4 || p.calls[1] != "accept4" {
			return nil
		}
		if asked++; asked == 1 {
			return &reported{results: []int64{0, 1001, 0, -22}, bytes: make([]byte, p.size)}
		}
		b := make([]byte, p.size)
		copy(b, sockaddr([4]byte{127, 0, 0, 1}, 4000))
		copy(b[80:], sockaddr([4]byte{198, 18, 0, 5}, 80))
		return &reported{results: []int64{0, 1002, 0, 0}, bytes: b}
	})
	n, err := s.Network(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.TCP[80].Accept()
	if err != nil || c.LocalAddr().String() != "198.18.0.5:80" || c.RemoteAddr().String() != "127.0.0.1:4000" {
		t.Fatalf("got %v %v, want a connection from 127.0.0.1:4000 to 198.18.0.5:80", c, err)
	}
	if !f.closed(1001) || f.closed(1002) {
		t.Errorf("1001 closed %t, 1002 closed %t, want true and false", f.closed(1001), f.closed(1002))
	}
}

// TestDescriptorsAreNotUsedAfterTheirEnd: the number of a closed descriptor may be another's.
func TestDescriptorsAreNotUsedAfterTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t, nil)
		c := newSocket(s.c, 1001, address(nil), address(nil))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the fake has noted the end of the connection
		before := len(f.packets())
		if err := c.CloseWrite(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("CloseWrite: got %v, want %v", err, net.ErrClosed)
		}
		if err := c.SetLinger(0); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetLinger: got %v, want %v", err, net.ErrClosed)
		}
		p := newPackets(s.c, 1002)
		read := make(chan error, 1)
		go func() {
			_, _, err := p.ReadFrom(make([]byte, 10))
			read <- err
		}()
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("ReadFrom: got %v, want %v", err, net.ErrClosed)
		}
		if _, err := p.WriteTo([]byte("x"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("WriteTo: got %v, want %v", err, net.ErrClosed)
		}
		synctest.Wait()
		var order []string
		for _, p := range f.packets()[before:] {
			order = append(order, fmt.Sprintf("%c%v", p.kind, p.calls))
		}
		if want := []string{"Y[ recvfrom]", "Z[]", "Y[close]"}; !slices.Equal(order, want) {
			t.Errorf("got %q, want %q", order, want)
		}
	})
}

// TestEndedDeadlinesAskNothing: a relay that answers every list at once keeps no caller that has been stopped.
func TestEndedDeadlinesAskNothing(t *testing.T) {
	stop := make(chan struct{})
	s, _ := openFake(t, func(p packet) *reported {
		if p.fd == 1001 || p.kind == 'Z' {
			select {
			case <-stop:
			default:
				close(stop)
			}
			return &reported{results: []int64{-errAGAIN}, silent: p.kind == 'Z'}
		}
		return nil
	})
	if _, err := s.c.readSome(stop, 1001, make([]byte, 10)); !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
}

// TestPiecesAreWhatWasRead: a number of bytes that the answer does not have ends the stream.
func TestPiecesAreWhatWasRead(t *testing.T) {
	for _, r := range []reported{{results: []int64{1 << 20}, bytes: []byte("x")}, {results: []int64{0}, bytes: []byte("x")}, {results: []int64{5}}} {
		s, _ := openFake(t, func(p packet) *reported {
			if p.fd == 1001 {
				return &r
			}
			return nil
		})
		var to bytes.Buffer
		o := newOutput(s.c, 1001, &to, nil)
		<-o.done
		if err := o.failed(); !errors.Is(err, errGone) || to.Len() > 0 {
			t.Errorf("%d of %d bytes: got %v and %q, want %v and nothing", r.results[0], len(r.bytes), err, to.String(), errGone)
		}
		if _, err := s.c.readSome(nil, 1001, make([]byte, 10)); !errors.Is(err, errGone) {
			t.Errorf("readSome, %d of %d bytes: got %v, want %v", r.results[0], len(r.bytes), err, errGone)
		}
	}
}

// TestAttackAnnouncedOutputThatDoesNotCome: a relay that has been taken over says that a stream has bytes, and
// sends none. The server reads the stream without a deadline, and the run keeps its place in the queue until it gives up
// the sandbox.
func TestAttackAnnouncedOutputThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openFake(t, func(p packet) *reported {
			if p.kind == 'Y' && p.fd < 0 && p.size == 4*len(p.calls) && slices.ContainsFunc(p.calls, isIoctl) {
				return &reported{results: make([]int64, len(p.calls)), bytes: bytes.Repeat([]byte{0xff}, p.size)}
			}
			return nil
		})
		r, err := s.Start(t.Context(), backend.Process{Argv: []string{"/bin/x"}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Flush(context.WithoutCancel(t.Context())) }()
		patience := time.NewTimer(time.Hour) // of the test's own clock
		defer patience.Stop()
		select {
		case err = <-ended:
			if !errors.Is(err, errGone) {
				t.Errorf("got %v, want %v", err, errGone)
			}
		case <-patience.C:
			s.c.close()
			t.Errorf("it waits for output that does not come, and then fails with %v", <-ended)
		}
	})
}

// isIoctl reports whether a call of a fake is ioctl, which parse does not name.
func isIoctl(name string) bool { return name == "" }

// entry encodes a struct linux_dirent64.
func entry(name string) []byte {
	b := make([]byte, 16)
	b = binary.LittleEndian.AppendUint16(b, uint16(20+len(name)))
	return append(append(append(b, 8), name...), 0)
}

// TestNamesOfADirectory: names have no slash, and a list ends.
func TestNamesOfADirectory(t *testing.T) {
	for name, c := range map[string]struct {
		first, rest []byte
		want        []string
		err         error
	}{
		"names":       {first: slices.Concat(entry("."), entry(".."), entry("a"), entry("b")), want: []string{"a", "b"}},
		"a slash":     {first: entry("../x"), err: errGone},
		"no name":     {first: entry(""), err: errGone},
		"no entry":    {first: make([]byte, 19), rest: make([]byte, 19), err: errGone},
		"a part":      {first: append(entry("a"), 1, 2), err: errGone},
		"without end": {first: entry("."), rest: entry(".")},
	} {
		asked := 0
		s, _ := openFake(t, func(p packet) *reported {
			if len(p.calls) != 1 || p.calls[0] != "getdents64" {
				return nil
			}
			b := c.rest
			if asked++; asked == 1 {
				b = c.first
			}
			return &reported{results: []int64{int64(len(b))}, bytes: b}
		})
		got, err := files{s}.names(t.Context(), 1001, 10)
		if !errors.Is(err, c.err) || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q %v, want %q %v", name, got, err, c.want, c.err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = (files{s}).names(ended, 1001, 10); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v after the caller's end, want %v", name, err, context.Canceled)
		}
	}
}

// TestPortsOfTheServerAreKept: a network that was not opened leaves no port of the server to programs, and
// until a socket listens no program can bind its port as well.
func TestPortsOfTheServerAreKept(t *testing.T) {
	var free atomic.Bool
	s, f := openFake(t, func(p packet) *reported {
		if !free.Load() && slices.Contains(p.calls, "bind") && bytes.Contains(p.raw, []byte{inet, 0, 8080 >> 8, 8080 & 0xff}) {
			return &reported{results: []int64{1001, 0, -98}}
		}
		return nil
	})
	for _, p := range f.packets() {
		if slices.Contains(p.calls, "setsockopt") {
			t.Error("a socket that does not listen yet shares its port")
		}
	}
	early := []int{s.network.bound[80], s.network.bound[443], s.network.bound[backend.ProxyPort], s.network.dns, s.network.dnsTCP}
	_, err := s.Network(t.Context(), []int{8080})
	if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v, want that a port is taken", err)
	} else if !strings.Contains(e.Message, "port 8080") {
		t.Errorf("got %q, want the port", e.Message)
	}
	for _, p := range f.packets() {
		if slices.Contains(p.calls, "listen") { // programs would wait at it
			t.Error("a socket listens, and no network is open")
		}
	}
	free.Store(true)
	n, err := s.Network(t.Context(), []int{8080})
	if err != nil || len(n.TCP) != 3 || n.Proxy == nil || n.TCP[80].(*listener).fd != early[0] || n.TCP[443].(*listener).fd != early[1] { //nolint:forcetypeassert // they are listeners
		t.Errorf("got %+v %v, want the sockets that were made at the beginning, and 8080", n, err)
	}
	for _, fd := range early {
		if f.closed(fd) {
			t.Errorf("descriptor %d was closed", fd)
		}
	}
	if !f.closed(1001) {
		t.Error("the socket that was not bound is open")
	}
}

// TestBounded: each place that programs can write to has to be bounded.
func TestBounded(t *testing.T) {
	spec := backend.Spec{MemoryBytes: 1 << 30, WorkBytes: 8 << 20, WorkInodes: 100, TempBytes: 4 << 20}
	var good [4]Size
	for i, at := range places(spec) {
		good[i] = Size{at.Bytes, at.Files}
	}
	for i := range good {
		for name, c := range map[string]struct {
			size         Size
			bytes, files bool
		}{
			"as it should be": {good[i], true, true},
			"unlimited":       {Size{0, 0}, false, false},
			"too large":       {Size{good[i].Bytes + slack + 1, good[i].Files}, false, true},
			"too many files":  {Size{good[i].Bytes, good[i].Files + 1}, true, false},
		} {
			seen := Seen{Sizes: slices.Clone(good[:])}
			seen.Sizes[i] = c.size
			if b, n := seen.Bounded(spec); b != c.bytes || n != c.files {
				t.Errorf("%s, %s: got %t %t, want %t %t", places(spec)[i].Path, name, b, n, c.bytes, c.files)
			}
		}
	}
	if b, n := (Seen{Sizes: good[:3]}).Bounded(spec); b || n {
		t.Errorf("three places: got %t %t, want false", b, n)
	}
	if b, n := (Seen{}).Bounded(spec); b || n {
		t.Errorf("nothing seen: got %t %t, want false", b, n)
	}
}

// TestLookReadsEachPlace: the sizes that are reported are those that the kernel reports.
func TestLookReadsEachPlace(t *testing.T) {
	s, _ := openFake(t, func(p packet) *reported {
		if !slices.Contains(p.calls, "statfs") {
			return nil
		}
		r := &reported{results: make([]int64, len(p.calls)), bytes: make([]byte, p.size)}
		for i := range places(backend.Spec{}) {
			at := r.bytes[512+statfsSize*i:]
			binary.LittleEndian.PutUint64(at[8:], 1<<uint(i))
			binary.LittleEndian.PutUint64(at[16:], 4096)
			binary.LittleEndian.PutUint64(at[40:], uint64(i))
		}
		r.results[len(p.calls)-1] = -1 // the last place was not observed
		return r
	})
	seen, err := s.c.look()
	if want := []Size{{4096, 0}, {8192, 1}, {16384, 2}, {}}; err != nil || !slices.Equal(seen.Sizes, want) {
		t.Errorf("got %v %v, want %v", seen.Sizes, err, want)
	}
	if got := multiply(1<<40, 1<<40); got != 0 {
		t.Errorf("2^80 bytes: got %d, want 0", got)
	}
}
