package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Kernel objects that no memory limit counts, and how many of each one sandbox may
// hold. The table of all of them is docs/kernel-objects.md.
const (
	maxLocks       = 4096 // record locks and flock
	maxConnections = 8192 // TCP sockets of its network namespace, those that wait to be accepted included

	objectsEvery = 250 * time.Millisecond

	// lockLines bounds one look at /proc/locks: each further line costs the kernel more than the one before.
	lockLines = 1 << 16
	// lockRest is how many times as long as a look at the locks took none is taken again, so
	// that a host with many locks of its own costs a bounded share of a core.
	lockRest = 50
)

// objectWatch counts the kernel objects of all sandboxes of a backend and ends a
// sandbox that holds too many. It runs while a sandbox lives. Between two looks a
// program can take more.
type objectWatch struct {
	b        *Backend
	running  bool      // guarded by b.mu
	nextLook time.Time // at the locks; of the goroutine alone
	quit     chan struct{}
	locks    string // the file; replaced in tests
}

// startLocked starts the watch unless it runs. b.mu is held.
func (o *objectWatch) startLocked() {
	if o.running || o.b.closed {
		return
	}
	o.running = true
	o.b.ends.Go(o.run)
}

// run looks at the end of each interval, so that a short run costs nothing.
func (o *objectWatch) run() {
	t := time.NewTicker(objectsEvery)
	defer t.Stop()
	for {
		select {
		case <-o.quit:
			return
		case <-t.C:
		}
		live := o.live()
		if live == nil {
			return
		}
		o.look(live)
	}
}

// stopLocked ends the watch. b.mu is held, and b.closed is set from here on.
func (o *objectWatch) stopLocked() {
	if !o.b.closed {
		close(o.quit)
	}
}

// live lists the sandboxes to look at; nil stops the watch.
func (o *objectWatch) live() []*sandbox {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	if len(o.b.live) == 0 {
		o.running = false
		return nil
	}
	list := make([]*sandbox, 0, len(o.b.live))
	for s := range o.b.live {
		list = append(list, s)
	}
	return list
}

func (o *objectWatch) look(live []*sandbox) {
	for _, s := range live {
		if n := s.connections(); n > maxConnections {
			s.endFor(fmt.Sprintf("more than %d TCP connections", maxConnections))
		}
	}
	if time.Now().Before(o.nextLook) {
		return
	}
	began := time.Now()
	o.lookAtLocks(live)
	o.nextLook = began.Add(lockRest * time.Since(began))
}

// lookAtLocks ends the sandboxes that hold too many locks.
func (o *objectWatch) lookAtLocks(live []*sandbox) {
	f, err := os.Open(o.locks)
	if err != nil {
		return
	}
	byPID, total := countLocks(f)
	_ = f.Close()
	if total <= maxLocks {
		return
	}
	owners := map[int]*sandbox{}
	for _, s := range live {
		owners[s.slot.PID()] = s
	}
	held := map[*sandbox]int{}
	for pid, n := range byPID {
		if s := ownerOf(pid, owners); s != nil {
			held[s] += n
		}
	}
	for s, n := range held {
		if n > maxLocks {
			s.endFor(fmt.Sprintf("more than %d file locks", maxLocks))
		}
	}
}

// countLocks reads the form of /proc/locks and counts its lines by process.
func countLocks(r io.Reader) (byPID map[int]int, total int) {
	byPID = map[int]int{}
	lines := bufio.NewScanner(r)
	for lines.Scan() && total < lockLines {
		f := bytes.Fields(lines.Bytes())
		if len(f) > 1 && string(f[1]) == "->" { // one that waits for the lock above
			f = f[1:]
		}
		if len(f) < 5 {
			continue
		}
		total++
		if pid, err := strconv.Atoi(string(f[4])); err == nil {
			byPID[pid]++
		}
	}
	return byPID, total
}

// maxAncestry is how many parents of a process are asked for.
const maxAncestry = 4096

// ownerOf finds the sandbox of a process by its parents: init adopts every process
// whose parent ended, so that the way up from each leads to it.
func ownerOf(pid int, owners map[int]*sandbox) *sandbox {
	for range maxAncestry {
		if s := owners[pid]; s != nil {
			return s
		}
		parent, err := parentOf(pid)
		if err != nil || parent <= 1 {
			return nil
		}
		pid = parent
	}
	return nil
}

func parentOf(pid int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before it is the program's to choose
	if len(f) < 2 {
		return 0, errors.New("no parent in stat")
	}
	return strconv.Atoi(string(f[1]))
}

// connections counts the TCP sockets in the sandbox's network namespace.
func (s *sandbox) connections() int {
	if s.hall.Mode() == jail.ModePlain { // no socket of the network can be made there
		return 0
	}
	release, err := s.hold()
	if err != nil {
		return 0
	}
	defer release()
	fd, err := unix.Open("/proc/"+strconv.Itoa(s.slot.PID())+"/net/sockstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	var buf [512]byte
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd)
	if err != nil || s.slot.Ended() { // its number may be another's
		return 0
	}
	return inUse(buf[:n])
}

// inUse is the number of TCP sockets in the form of /proc/net/sockstat.
func inUse(text []byte) int {
	_, rest, ok := bytes.Cut(text, []byte("TCP: inuse "))
	if f := bytes.Fields(rest); ok && len(f) > 0 {
		n, _ := strconv.Atoi(string(f[0]))
		return n
	}
	return 0
}

// endFor ends the programs of the sandbox for what they hold of the kernel.
func (s *sandbox) endFor(excess string) {
	release, err := s.hold()
	if err != nil {
		return
	}
	defer release()
	s.mu.Lock()
	s.excess = excess
	s.overObjects++
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // no caller waits for the watch
	defer cancel()
	if s.slot.Clear(ctx) != nil {
		_ = s.slot.Kill()
	}
}
