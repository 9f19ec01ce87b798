package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Snapshot is the saved memory of a zygote's fork that has imported packages. Other
// forks of the same zygote can load it. Its bytes may come from untrusted package code:
// the server never parses them, and a fork loads them only inside its own sandbox. Its
// methods may be called concurrently.
type Snapshot struct {
	mu sync.Mutex // never held while waiting
	fd int        // a sealed memory file; -1: closed
}

// MaxSnapshots is how many snapshots a zygote keeps.
const MaxSnapshots = 4

const (
	maxSnapshot = 256 << 20
	importLimit = time.Minute // how long a fork may take to import packages and to save its memory
)

// NewSnapshot copies size bytes, the file that Child.Save wrote, into sealed memory.
func NewSnapshot(from io.Reader, size int64) (*Snapshot, error) {
	if size <= 0 || size > maxSnapshot {
		return nil, fmt.Errorf("snapshot has %d bytes, want 1 to %d", size, maxSnapshot)
	}
	fd, err := unix.MemfdCreate("sandboxmcp-snapshot", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	file := os.NewFile(uintptr(fd), "snapshot")
	defer func() { _ = file.Close() }()
	if _, err = io.CopyN(file, from, size); err != nil {
		return nil, fmt.Errorf("copy snapshot: %w", err)
	}
	_ = inLargePages(fd, size) // without it, forks take longer to load it and to end

	if err = unix.Fchmod(fd, 0o400); err != nil { // forks get descriptors of it, and may not change its attributes
		return nil, fmt.Errorf("protect snapshot: %w", err)
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, fmt.Errorf("seal snapshot: %w", err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &Snapshot{fd: own}, nil
}

// open returns a read-only descriptor for one fork. Each fork gets a new one, because code
// in a snapshot may keep it, and forks must not share its offset and flags.
func (s *Snapshot) open() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return -1, os.ErrClosed
	}
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// Close closes the snapshot. The kernel frees the memory once no process maps it. Close
// does not wait for a Load. It may be called more than once, and on nil.
func (s *Snapshot) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.fd)
	s.fd = -1
}

// Keep stores a snapshot of one of the zygote's forks under a name and takes ownership
// of it. It closes an older snapshot of that name. If the zygote is closed or has
// MaxSnapshots, Keep closes s. If s is nil, Keep only removes the older snapshot.
func (z *Zygote) Keep(name string, s *Snapshot) {
	if old, ok := z.snapshots.Take(name, nil); ok {
		old.Close()
	}
	if s != nil && !z.snapshots.Put(name, s) {
		s.Close()
	}
}

// Snapshot returns the snapshot of that name, or nil.
func (z *Zygote) Snapshot(name string) *Snapshot {
	s, _ := z.snapshots.Peek(name)
	return s
}

// Snapshots returns how many snapshots the zygote keeps.
func (z *Zygote) Snapshots() int { return z.snapshots.Len() }

// Save has the fork run text, which imports packages, and write its memory to the
// file "snapshot" in the sandbox's work directory. From here on the sandbox runs
// code that cannot be trusted; it must be killed before the file is read.
func (c *Child) Save(text []byte) error {
	return c.tell(append(words('I'), text...), importLimit)
}

// Load replaces the fork's memory by the snapshot. On error the sandbox may hold
// unusable processes, and the caller must call Slot.Clear. ahead is as in Fork.
func (c *Child) Load(s *Snapshot, ahead bool) error {
	image, err := s.open()
	if err != nil {
		return fmt.Errorf("load snapshot: %w", err)
	}
	defer closeAll(image)
	early := uint32(0)
	if ahead {
		early = 1
	}
	return c.tell(words('L', early), forkLimit, image)
}

// Loaded reports whether package code may have run in the fork.
func (c *Child) Loaded() bool { return c.loaded }

// Same reports whether z is the zygote of the fork.
func (c *Child) Same(z *Zygote) bool { return c.zygote == z }

// tell sends a request and waits until the fork reports that it is done. After the
// request the fork runs untrusted code. Its answer therefore comes over a pipe, which
// cannot carry descriptors, and tell shuts the socket down for receiving.
func (c *Child) tell(packet []byte, limit time.Duration, fds ...int) error {
	var answer [2]int
	if err := unix.Pipe2(answer[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("tell a fork: %w", err)
	}
	defer closeAll(answer[0])
	err := unix.Shutdown(c.control, unix.SHUT_RD)
	if err == nil {
		c.loaded = true
		err = send(c.control, packet, append([]int{answer[1]}, fds...)...)
	}
	closeAll(answer[1])
	if err != nil {
		return fmt.Errorf("tell a fork: %w", err)
	}
	var b [256]byte
	p := b[:0]
	for end := time.Now().Add(limit); len(p) < 4; {
		left := time.Until(end)
		if left <= 0 {
			return errors.New("a fork does not answer")
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(answer[0]), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		var n int
		if err == nil {
			n, err = unix.Read(answer[0], b[len(p):])
		}
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return fmt.Errorf("hear a fork: %w", err)
		case n == 0:
			return errors.New("a fork has ended")
		}
		p = b[:len(p)+n]
	}
	if word(p, 0) != 'R' {
		return fmt.Errorf("a fork failed: %w: %q", unix.Errno(word(p, 1)), p[min(8, len(p)):])
	}
	return nil
}
