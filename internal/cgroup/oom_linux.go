package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// OOMs tells whether the memory limit of a group has ended processes, also after the group was removed.
type OOMs struct {
	group  *Group
	events int // eventfd; the kernel adds 1 for each time that memory ran out, and 1 for the removal
}

// OOMs begins to observe an adopted group. Only version 1 of control groups has such events: on
// another it fails with errors.ErrUnsupported. The caller closes the returned value.
func (g *Group) OOMs() (*OOMs, error) {
	h := g.tree.of("memory")
	if h == nil || g.tree.version != 1 {
		return nil, errors.ErrUnsupported
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("observe the memory of %s: %w", g.name, err)
	}
	o := &OOMs{g, fd}
	control, err := h.open(g.path("memory.oom_control"), unix.O_RDONLY)
	if err == nil {
		err = h.write(g.path("cgroup.event_control"), fmt.Sprintf("%d %d", fd, control))
		unix.Close(control)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("observe the memory of %s: %w", g.name, err), o.Close())
	}
	return o, nil
}

// removalLimit bounds the wait for the event of a removal, which the kernel adds shortly after it.
const removalLimit = time.Second

// Any reports whether the memory limit has ended a process. It is called once, when all processes of
// the group have ended. If the group was removed just now, it waits for that to be reported.
func (o *OOMs) Any() bool {
	n := o.read(0)
	if n <= 1 && o.exists() { // an earlier event, not the removal of the group
		return n == 1
	}
	if n <= 1 {
		n += o.read(removalLimit)
	}
	if n == 1 { // of two events, the second may come later
		n += o.read(removalLimit)
	}
	return n > 1
}

// exists reports whether the group has not been removed.
func (o *OOMs) exists() bool {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	return !o.group.removed && o.group.tree.of("memory").has(o.group.path("memory.oom_control"))
}

// read returns the events since the last call. If there are none, it waits for one.
func (o *OOMs) read(limit time.Duration) uint64 {
	var b [8]byte
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(o.events), Events: unix.POLLIN}}, int(limit.Milliseconds()))
	if err != nil {
		return 0
	}
	if n, err := unix.Read(o.events, b[:]); err != nil || n != len(b) {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// Close ends the observation.
func (o *OOMs) Close() error { return unix.Close(o.events) }
