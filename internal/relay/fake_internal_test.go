package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// packet is a packet of the server, as a fake relay reads it.
type packet struct {
	kind  byte
	tag   uint32
	fd    int      // it waits for this descriptor; -1: it does not wait
	calls []string // names of the system calls that the fake knows, and otherwise ""
	first []int    // the first argument of each call
	size  int      // bytes of the answer
	from  bool     // a result says how many bytes the answer has
	raw   []byte
}

// reported is an answer of a fake relay.
type reported struct {
	results []int64
	bytes   []byte
	silent  bool // there is no answer
}

// fake is a relay that answers as a test says. Its default answers are those of a kernel in which every
// call succeeds and no descriptor is ever ready.
type fake struct {
	stream net.Conn
	answer func(p packet) *reported // nil: the default

	mu   sync.Mutex
	next int64 // number of the next socket, stream or process
	got  []packet
}

var known = []string{"socket", "bind", "listen", "setsockopt", "getsockopt", "accept4", "getsockname", "recvfrom", "close", "shutdown", "connect", "getpeername", "read", "getdents64", "statfs", "openat2", "geteuid", "getpid", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "setgroups", "setresgid", "setresuid", "capset", "fchmodat", "prlimit64"}

// newFake returns a fake relay and the server's end of its stream.
func newFake(t *testing.T, answer func(p packet) *reported) (*fake, io.ReadWriteCloser) {
	t.Helper()
	ours, theirs := net.Pipe()
	f := &fake{stream: theirs, answer: answer, next: 100}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = theirs.Close() }()
		_, _ = theirs.Write(words(20, 'R', 1, 0, 0))
		for f.serve() == nil {
		}
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		<-ended
	})
	return f, ours
}

// serve answers the next packet.
func (f *fake) serve() error {
	var head [4]byte
	if _, err := io.ReadFull(f.stream, head[:]); err != nil {
		return err
	}
	raw := make([]byte, binary.LittleEndian.Uint32(head[:]))
	copy(raw, head[:])
	if _, err := io.ReadFull(f.stream, raw[4:]); err != nil {
		return err
	}
	p := parse(raw)
	f.mu.Lock()
	f.got = append(f.got, p)
	f.mu.Unlock()
	var r *reported
	if f.answer != nil {
		r = f.answer(p)
	}
	if r == nil {
		r = f.usual(p)
	}
	if r.silent {
		return nil
	}
	out := words(uint32(16+8*len(r.results)+len(r.bytes)), 'Y', p.tag, uint32(len(r.results)))
	for _, v := range r.results {
		out = binary.LittleEndian.AppendUint64(out, uint64(v))
	}
	_, err := f.stream.Write(append(out, r.bytes...))
	return err
}

func parse(raw []byte) packet {
	word := func(i int) int { return int(int32(binary.LittleEndian.Uint32(raw[4*i:]))) }
	p := packet{kind: raw[4], tag: uint32(word(2)), fd: -1, raw: raw}
	if p.kind != 'Y' && p.kind != 'F' {
		return p
	}
	p.fd, p.size, p.from = word(3), word(6), word(7) != 0
	for i := range word(5) {
		at := listHead + callSize*i
		name := ""
		for _, n := range known {
			if nr, _ := seccomp.Number(seccomp.AMD64, n); nr == binary.LittleEndian.Uint32(raw[at:]) {
				name = n
			}
		}
		p.calls = append(p.calls, name)
		p.first = append(p.first, int(binary.LittleEndian.Uint64(raw[at+16:])))
	}
	return p
}

func (f *fake) usual(p packet) *reported {
	switch {
	case p.kind == 'Y' && p.fd >= 0:
		return &reported{silent: true}
	case p.kind == 'Z':
		return &reported{results: []int64{-125}}
	case p.kind == 'S':
		n := 1 + int(binary.LittleEndian.Uint32(p.raw[24:]))
		r := &reported{}
		for range n {
			f.next++
			r.results = append(r.results, f.next)
		}
		return r
	case p.kind != 'Y':
		return &reported{results: []int64{0}}
	}
	r := &reported{results: make([]int64, len(p.calls)), bytes: make([]byte, p.size)}
	for i, name := range p.calls {
		switch name {
		case "socket":
			f.next++
			r.results[i] = f.next
		case "getpid":
			r.results[i] = 1
		case "recvfrom": // the kernel's answer to a new address
			r.results[i] = 36
			r.bytes[4] = 2
		}
	}
	if p.from {
		r.bytes = nil
		if bytes.Contains(p.raw, []byte("/proc/net/dev\x00")) {
			r.bytes = []byte("    lo: 0 0\n")
		}
	}
	return r
}

// packets returns what the server has sent.
func (f *fake) packets() []packet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// closed reports whether the server has closed a descriptor.
func (f *fake) closed(fd int) bool {
	return slices.ContainsFunc(f.packets(), func(p packet) bool {
		return len(p.calls) == 1 && p.calls[0] == "close" && p.first[0] == fd
	})
}

// openFake opens a sandbox of a fake relay. Its walls count as observed.
func openFake(t *testing.T, answer func(p packet) *reported) (*Sandbox, *fake) {
	t.Helper()
	f, stream := newFake(t, answer)
	s, err := Open(t.Context(), Config{
		Stream: stream, Arch: seccomp.AMD64, Program: "/relay", Spec: backend.Spec{MemoryBytes: 1 << 30, WorkBytes: 1 << 20}, UID: 1000,
		Isolation: func(_ context.Context, seen Seen) (sandboxmcp.Isolation, error) {
			return sandboxmcp.Isolation{Kernel: seen.Kernel, Walls: []string{seen.Network}}, nil
		},
		Usage:  func(context.Context, func() Spent) (backend.Usage, error) { return backend.Usage{}, nil },
		Remove: func() error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.first = &Seen{Kernel: "seen"}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s, f
}
