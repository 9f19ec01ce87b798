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

// Snapshot is the memory of a fork of a zygote that has imported packages. Other
// forks of the same zygote can load it. Package code may have written its bytes, so only
// such a fork reads them, in its own sandbox. Its methods may be called concurrently.
type Snapshot struct {
	mu sync.Mutex // never held over a wait
	fd int        // a sealed memory file; -1: closed
}

const (
	maxSnapshot = 256 << 20
	importLimit = time.Minute // how long a fork may take to import packages and to save itself
)

// NewSnapshot keeps what Child.Save wrote. It reads size bytes.
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
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, fmt.Errorf("seal snapshot: %w", err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &Snapshot{fd: own}, nil
}

// open returns a descriptor for one fork. It can only be read, and its offset and flags
// are not those of other forks: the code in a snapshot may keep it.
func (s *Snapshot) open() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return -1, os.ErrClosed
	}
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// Close gives the memory back once no process has it mapped. It does not wait for
// a Load. It may be called more than once.
func (s *Snapshot) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.fd)
	s.fd = -1
}

// Keep stores a snapshot of one of the zygote's forks under a name, and closes an older
// one of that name. If the zygote is closed, Keep closes the snapshot. With nil it only
// removes the older one.
func (z *Zygote) Keep(name string, s *Snapshot) {
	z.life.Lock()
	defer z.life.Unlock()
	z.snapshots[name].Close()
	delete(z.snapshots, name)
	switch {
	case s == nil:
	case z.pidfd < 0:
		s.Close()
	default:
		z.snapshots[name] = s
	}
}

// Snapshot returns the snapshot of that name, or nil.
func (z *Zygote) Snapshot(name string) *Snapshot {
	z.life.Lock()
	defer z.life.Unlock()
	return z.snapshots[name]
}

// Snapshots returns how many snapshots the zygote keeps.
func (z *Zygote) Snapshots() int {
	z.life.Lock()
	defer z.life.Unlock()
	return len(z.snapshots)
}

// Save has the fork run text, which imports packages, and write its memory to the
// file "snapshot" in the sandbox's work directory. From here on the sandbox runs
// code that cannot be trusted; it must be killed before the file is read.
func (c *Child) Save(text []byte) error {
	return c.tell(append(words('I'), text...), importLimit)
}

// Load has the fork become the process whose memory the snapshot is. On error the
// sandbox may hold processes that cannot be used and has to be cleared. ahead is as
// in Fork.
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

// Same reports whether the fork is one of the zygote's.
func (c *Child) Same(z *Zygote) bool { return c.zygote == z }

// tell sends a request and waits until the fork says that it is done. After the request
// the fork runs code that cannot be trusted. The answer therefore comes over a pipe, which
// carries no descriptors; tell shuts the socket for receiving.
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
