package jail

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSnapshotIsBoundedAndSealed: what untrusted code wrote is copied up to a
// bound, and nothing can change the copy.
func TestSnapshotIsBoundedAndSealed(t *testing.T) {
	for _, size := range []int64{-1, 0, maxSnapshot + 1, 1 << 62} {
		if s, err := NewSnapshot(strings.NewReader("x"), size); err == nil {
			s.Close()
			t.Errorf("size %d: got a snapshot, want an error", size)
		}
	}
	if s, err := NewSnapshot(strings.NewReader("x"), 2); err == nil {
		s.Close()
		t.Error("a file that got shorter: got a snapshot, want an error")
	}
	s, err := NewSnapshot(bytes.NewReader([]byte("abc")), 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(s.fd, []byte("x"), 0); err == nil {
		t.Error("write: got nil, want an error")
	}
	if err := unix.Ftruncate(s.fd, 1); err == nil {
		t.Error("truncate: got nil, want an error")
	}
	s.Close()
	s.Close()
	if err := (&Child{control: -1}).Load(s, false); err == nil {
		t.Error("load of a closed one: got nil, want an error")
	}
}

// TestCloseOfASnapshotDoesNotWaitForALoad: the caller of Close holds locks
// that every fork needs, and a fork may take seconds to load.
func TestCloseOfASnapshotDoesNotWaitForALoad(t *testing.T) {
	s, err := NewSnapshot(strings.NewReader("abc"), 3)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ends[0])
	loaded := make(chan error, 1)
	go func() { loaded <- (&Child{control: ends[0]}).Load(s, false) }()
	var b [64]byte
	_, fds, err := receive(ends[1], b[:]) // the fork has its request and does not answer
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	select {
	case err := <-loaded:
		t.Fatalf("Close waited for Load to end with %v, want Close to return first", err)
	default:
	}
	closeAll(append(fds, ends[1])...)
	if err := <-loaded; err == nil {
		t.Error("load in a fork that ended: got nil, want an error")
	}
}
