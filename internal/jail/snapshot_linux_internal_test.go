package jail

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

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
	var st unix.Stat_t
	if err := unix.Fstat(s.fd, &st); err != nil || st.Mode&0o777 != 0o400 {
		t.Errorf("mode: got %o, %v, want that only its owner may read it, and no user may write it", st.Mode, err)
	}
	s.Close()
	s.Close()
	if err := (&Child{control: -1}).Load(s, false); err == nil {
		t.Error("load of a closed one: got nil, want an error")
	}
}

// TestSnapshotIsInLargePages: forks map and unmap a snapshot faster if its memory is in large pages. Its contents stay the same.
func TestSnapshotIsInLargePages(t *testing.T) {
	other, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(other)
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*largePage/16-1)
	if _, err = unix.Pwrite(other, data, 0); err != nil {
		t.Fatal(err)
	}
	if err = inLargePages(other, int64(len(data))); err != nil {
		t.Skip("the kernel gives memory files no large pages:", err)
	}
	s, err := NewSnapshot(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := make([]byte, len(data))
	if n, err := unix.Pread(s.fd, got, 0); n != len(data) || err != nil || !bytes.Equal(got, data) {
		t.Errorf("contents: got %d bytes, %v, equal: %v, want the %d that were written", n, err, bytes.Equal(got, data), len(data))
	}
	const space = 4 * largePage
	m, err := unix.MmapPtr(s.fd, 0, nil, space, unix.PROT_READ, unix.MAP_SHARED) // the kernel shows large pages of it where the address is aligned
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.MunmapPtr(m, space) }()
	aligned := unsafe.Add(m, -uintptr(m)&(largePage-1))
	if _, err = unix.MmapPtr(s.fd, 0, aligned, 2*largePage, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		t.Fatal(err)
	}
	if got := *(*byte)(unsafe.Add(aligned, 1)); got != '1' {
		t.Errorf("mapped: got %q, want '1'", got)
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`ShmemPmdMapped: +[1-9]`).Match(text) {
		t.Error("got no large page that is mapped, want one")
	}
}

// TestForksShareNoDescriptorOfASnapshot: what the code in a snapshot does with the one that
// it is loaded from shows in no other fork.
func TestForksShareNoDescriptorOfASnapshot(t *testing.T) {
	s, err := NewSnapshot(strings.NewReader("abc"), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var fds [2]int
	for i := range fds {
		if fds[i], err = s.open(); err != nil {
			t.Fatal(err)
		}
		defer closeAll(fds[i])
	}
	if _, err := unix.Seek(fds[0], 2, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	if at, err := unix.Seek(fds[1], 0, unix.SEEK_CUR); at != 0 || err != nil {
		t.Errorf("offset of another fork: got %d, %v, want 0", at, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0); flags&unix.O_ACCMODE != unix.O_RDONLY || err != nil {
		t.Errorf("access: got %#x, %v, want that it can only be read", flags, err)
	}
}

// TestCloseOfASnapshotAwaitsNoLoad: a fork that does not answer delays only its own load.
func TestCloseOfASnapshotAwaitsNoLoad(t *testing.T) {
	s, err := NewSnapshot(strings.NewReader("abc"), 3)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ours, theirs)
	loaded := make(chan error, 1)
	go func() { loaded <- (&Child{control: ours}).Load(s, false) }()
	_ = hearFor(theirs, 5*time.Second)
	var b [64]byte
	_, fds, err := receive(theirs, b[:]) // it is being loaded now
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	select {
	case err := <-loaded:
		t.Errorf("the load: got its end before Close returned (%v), want it after", err)
	default:
	}
	closeAll(fds...)
	if err := <-loaded; err == nil {
		t.Error("load by a fork that has ended: got nil, want an error")
	}
}
