package jail

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
)

// made is a sandbox of a jail.
func made(t *testing.T, j *Jail) *Slot {
	t.Helper()
	turn, err := j.Turn()
	if err != nil {
		t.Fatal(err)
	}
	s, err := turn.New(SlotConfig{Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSocketsStandInTheirSandbox: sockets are checked before they are handed out. A socket of
// the host, or of another sandbox, is refused.
func TestSocketsStandInTheirSandbox(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	s, other := made(t, j), made(t, j)
	defer func() { _ = other.Close() }()
	want := []Socket{{Port: 53, UDP: true}, {Port: 80}, {Port: 312, Loopback: true}}
	s.LeadOut()
	fds, err := s.Sockets(t.Context(), want)
	if err != nil || len(fds) != len(want) {
		t.Fatalf("Sockets: got %v, %v; want one for each that was requested", fds, err)
	}
	defer closeAll(fds...)
	for i, fd := range fds {
		name, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		wantAddr := [4]byte{}
		if want[i].Loopback {
			wantAddr = [4]byte{127, 0, 0, 1}
		}
		if got := name.(*unix.SockaddrInet4); got.Port != want[i].Port || got.Addr != wantAddr {
			t.Errorf("%v is bound to %v port %d", want[i], got.Addr, got.Port)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		closes, err2 := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if errors.Join(err, err2) != nil || flags&unix.O_NONBLOCK == 0 || closes&unix.FD_CLOEXEC == 0 {
			t.Errorf("%v has flags %#x, %#x", want[i], flags, closes)
		}
	}
	if err := s.verifySockets(fds); err != nil {
		t.Errorf("the sandbox's own sockets: got %v, want nil", err)
	}
	if err := other.verifySockets(fds[:1]); err == nil {
		t.Error("a socket of another sandbox: got no error, want a refusal")
	}
	host, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(host)
	if err := s.verifySockets([]int{host}); err == nil {
		t.Error("a socket of the host: got no error, want a refusal")
	}
	if o, err := s.Observe(0); err != nil || !slices.Contains(o.Walls, sandboxmcp.WallEgress) || slices.Contains(o.Walls, sandboxmcp.WallNoNetwork) {
		t.Errorf("walls with a network: got %q, %v; want the egress wall and not the no-network wall", o.Walls, err)
	}
	if o, err := other.Observe(0); err != nil || slices.Contains(o.Walls, sandboxmcp.WallEgress) || !slices.Contains(o.Walls, sandboxmcp.WallNoNetwork) {
		t.Errorf("walls without a network: got %q, %v; want the no-network wall and not the egress wall", o.Walls, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSocketsThatCannotBe: nothing is left open of what fails, and the failure
// has a name.
func TestSocketsThatCannotBe(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	s := made(t, j)
	fds, err := s.Sockets(t.Context(), []Socket{{Port: 80}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(fds...)
	if _, err := s.Sockets(t.Context(), []Socket{{Port: 81}, {Port: 80}}); !errors.Is(err, ErrPortTaken) || !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port that is taken: %v, want %v", err, ErrPortTaken)
	}
	again, err := s.Sockets(t.Context(), []Socket{{Port: 81}}) // what failed has left it
	if err != nil {
		t.Error(err)
	}
	closeAll(again...)
	for _, n := range []int{0, MaxSockets + 1} {
		if _, err := s.Sockets(t.Context(), make([]Socket, n)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%d sockets: got %v, want unsupported", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := <-j.spawners // no spawner is free
	if _, err := s.Sockets(ctx, []Socket{{Port: 82}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Sockets with a context that has ended: got %v, want canceled", err)
	}
	j.giveBack(w)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sockets(t.Context(), []Socket{{Port: 83}}); err == nil {
		t.Error("Sockets in a sandbox that has ended: got no error, want one")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSocketListIsThatOfTheSandbox: SocketList returns a netlink socket in the sandbox's network namespace, and an error if
// the sandbox has ended.
func TestSocketListIsThatOfTheSandbox(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	s, other := made(t, j), made(t, j)
	fd, err := s.SocketList(t.Context().Done())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(fd)
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || kind != unix.NETLINK_INET_DIAG {
		t.Errorf("got protocol %d, %v, want %d", kind, err, unix.NETLINK_INET_DIAG)
	}
	if err := other.verifySockets([]int{fd}); err == nil {
		t.Error("got a socket of both sandboxes, want one of the first")
	}
	if s.MayHaveSockets() != other.MayHaveSockets() {
		t.Error("got a sandbox whose programs may have made sockets")
	}
	for _, x := range []*Slot{s, other} {
		if err := x.End(); err != nil {
			t.Fatal(err)
		}
	}
	if fd, err := other.SocketList(t.Context().Done()); err == nil {
		closeAll(fd)
		t.Error("got a list of a sandbox that has ended, want an error")
	}
}
