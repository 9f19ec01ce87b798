package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// How many of the kernel objects that no memory limit counts one sandbox may hold.
// docs/kernel-objects.md lists all of them.
const (
	maxLocks       = 4096 // record locks and flock
	maxConnections = 8192 // TCP sockets of its network namespace, with those that wait to be accepted

	maxQueued  = 32 << 20  // bytes in sockets of the network, where no cgroup counts them; twice that in UDP elsewhere
	fewSockets = 64        // fewer sockets cannot hold maxQueued
	maxCorked  = 64 << 10  // bytes of a datagram that a program has begun and not sent
	maxEach    = 256 << 10 // bytes that wait in a socket besides
	maxNetFile = 8 << 20   // bytes of a list of sockets, some 50 000 of them

	// The watch asks every objectsEvery how much CPU time each sandbox has used. It counts what
	// a sandbox holds once that is idleCPU more than at the last count, and after idleLong if
	// it is any more: in idleCPU a program can make ten times what it may hold. Kernel objects
	// are made by running, so a sandbox that rests holds no more than before.
	objectsEvery = 200 * time.Millisecond
	idleCPU      = 50 * time.Millisecond
	idleLong     = time.Second

	// lockLines bounds a reading of /proc/locks: each line costs the kernel more than the one before.
	lockLines = 1 << 16
	// lockRest bounds the cost of a host with many locks of its own. After a reading of
	// them, the watch does not read for so many times as long.
	lockRest = 20
)

// objectWatch counts the kernel objects of all sandboxes of a backend. It ends the
// programs of a sandbox that holds too many. It runs while a sandbox lives. Between two
// counts a program can hold more.
type objectWatch struct {
	b         *Backend
	running   bool      // guarded by b.mu
	locksDue  bool      // a sandbox has run since locks were counted; used by run alone
	epollDue  bool      // likewise for epoll watches
	nextLook  time.Time // locks are not counted before; used by run alone
	nextEpoll time.Time // likewise for epoll watches
	quit      chan struct{}
	short     chan struct{} // receives a value when the kernel refuses to watch a descriptor for the server
	locks     string        // path of /proc/locks; replaced in tests
}

// startLocked starts the watch unless it runs. b.mu is held.
func (o *objectWatch) startLocked() {
	if o.running || o.b.closed {
		return
	}
	o.running = true
	o.b.ends.Go(o.run)
}

// run counts at the end of each interval, so that a short run costs nothing.
func (o *objectWatch) run() {
	t := time.NewTicker(objectsEvery)
	defer t.Stop()
	for {
		short := false
		select {
		case <-o.quit:
			return
		case <-o.short:
			short = true
		case <-t.C:
		}
		live := o.live()
		if live == nil {
			return
		}
		o.look(live, short)
	}
}

// stopLocked ends the watch. b.mu is held, and the caller sets b.closed afterwards.
func (o *objectWatch) stopLocked() {
	if !o.b.closed {
		close(o.quit)
	}
}

// live returns the sandboxes to count. If there are none, it returns nil and notes that
// the watch has stopped.
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

// look counts what the sandboxes hold that have run since they were counted.
func (o *objectWatch) look(live []*sandbox, short bool) {
	for _, s := range live {
		if !s.hasRun() {
			continue
		}
		o.locksDue, o.epollDue = true, true
		for _, over := range []func() string{s.overSockets, s.overKills} {
			if excess := over(); excess != "" {
				s.endFor(excess)
				s.counted = -idleCPU // count it again
			}
		}
	}
	o.lookAtEpoll(live, short)
	if !o.locksDue || time.Now().Before(o.nextLook) {
		return
	}
	o.locksDue = false
	began := time.Now()
	if others := o.lookAtLocks(live); others {
		o.nextLook = time.Now().Add(lockRest * time.Since(began))
	}
}

// hasRun reports whether the sandbox may have used idleCPU since it was last counted, or
// any CPU time and that is idleLong ago. It notes that the sandbox is counted now.
func (s *sandbox) hasRun() bool {
	if s.group == nil {
		return true
	}
	used, ok := s.group.CPU()
	if s.countedAt.IsZero() {
		s.countedAt = time.Now()
	}
	little := used == s.counted || used > s.counted && used < s.counted+idleCPU && time.Since(s.countedAt) < idleLong
	if ok && little {
		return false
	}
	s.counted, s.countedAt = used, time.Now()
	return true
}

// lookAtLocks ends the programs of sandboxes that hold too many locks. others reports
// whether the machine has many locks and no sandbox holds too many.
func (o *objectWatch) lookAtLocks(live []*sandbox) (others bool) {
	f, err := os.Open(o.locks)
	if err != nil {
		return false
	}
	byPID, lines := countLocks(f)
	_ = f.Close()
	if lines <= maxLocks {
		return false
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
	others = true
	for s, n := range held {
		if n > maxLocks {
			s.endFor(fmt.Sprintf("more than %d file locks", maxLocks))
			o.locksDue = true
			others = false
		}
	}
	return others
}

// countLocks counts the locks of a text in the form of /proc/locks by process. The
// kernel writes the list in pieces and finds its place by the line number. If locks come
// meanwhile, it writes a lock twice; countLocks counts it once. Two locks of one process
// are never alike, because a process has one table of descriptors.
func countLocks(r io.Reader) (byPID map[int]int, lines int) {
	byPID = map[int]int{}
	seen, seed := map[uint64]struct{}{}, maphash.MakeSeed()
	text := bufio.NewScanner(r)
	for text.Scan() && lines < lockLines {
		_, lock, ok := bytes.Cut(text.Bytes(), []byte(": ")) // behind the number of the line
		f := bytes.Fields(lock)
		if len(f) > 0 && string(f[0]) == "->" { // one that waits for the lock above
			f = f[1:]
		}
		if !ok || len(f) < 4 {
			continue
		}
		lines++
		id := maphash.Bytes(seed, lock)
		if _, again := seen[id]; again {
			continue
		}
		seen[id] = struct{}{}
		if pid, err := strconv.Atoi(string(f[3])); err == nil {
			byPID[pid]++
		}
	}
	return byPID, lines
}

// maxAncestry bounds how many parents of a process ownerOf reads.
const maxAncestry = 4096

// ownerOf finds the sandbox of a process by its parents, or returns nil. Every process
// of a sandbox has its init above it, because init adopts the processes whose parent
// has ended.
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

// readNet reads a file of the sandbox's network namespace; nil: nothing is known.
func (s *sandbox) readNet(name string) []byte {
	release, err := s.hold()
	if err != nil {
		return nil
	}
	defer release()
	f, err := os.Open("/proc/" + strconv.Itoa(s.slot.PID()) + "/net/" + name)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxNetFile))
	if err != nil || s.slot.Ended() { // its number may be another's
		return nil
	}
	return text
}

// overSockets says of which sockets the sandbox holds too many. It returns "" if there
// are none.
func (s *sandbox) overSockets() string {
	if s.hall.Mode() == jail.ModePlain || !s.slot.MayHaveSockets() { // L1 refuses to make any
		return ""
	}
	v4, v6 := s.readNet("sockstat"), s.readNet("sockstat6")
	tcp, udp := inUse(v4, "TCP")+inUse(v6, "TCP6"), inUse(v4, "UDP")+inUse(v6, "UDP6")
	if tcp > maxConnections {
		return fmt.Sprintf("more than %d TCP connections", maxConnections)
	}
	hidden := 0
	if tcp+udp+fewSockets < usedSockets(v4) { // some may be of the Unix family
		hidden = s.unlisted()
	}
	lists, most := []string{"tcp", "tcp6", "udp", "udp6"}, int64(maxQueued)
	if s.group != nil { // it counts what TCP queues, and what UDP does but for errors and timestamps
		lists, most, tcp = lists[2:], 2*maxQueued, 0
	}
	if tcp+udp+hidden < fewSockets {
		return ""
	}
	sum := int64(hidden) * maxCorked
	if s.group == nil {
		sum += min(int64(hidden)*maxEach, allQueued(v4))
	}
	for _, name := range lists {
		sum += queued(s.readNet(name))
	}
	if sum > most {
		return fmt.Sprintf("more than %d MiB in connections", most>>20)
	}
	return ""
}

// unlisted returns how many sockets of the sandbox are in no list of their protocol. A
// socket leaves the list when its connection ends or is taken back, and keeps what waits
// in it.
func (s *sandbox) unlisted() int {
	protocols := s.readNet("protocols")
	return usedSockets(s.readNet("sockstat")) - listed(protocols)
}

// listed adds up the sockets of a text in the form of /proc/net/protocols.
func listed(text []byte) (sum int) {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 2 {
			n, _ := strconv.Atoi(string(f[2])) // the head of the list is no number
			sum += n
		}
	}
	return sum
}

// usedSockets returns the number of sockets of all families from a text in the form of
// /proc/net/sockstat.
func usedSockets(text []byte) int {
	_, rest, _ := bytes.Cut(text, []byte("sockets: used "))
	n, _, _ := bytes.Cut(rest, []byte("\n"))
	used, _ := strconv.Atoi(string(n))
	return used
}

// allQueued returns how many bytes wait in the sockets of the whole host from a text in
// the form of /proc/net/sockstat.
func allQueued(text []byte) (sum int64) {
	for line := range bytes.Lines(text) {
		if _, pages, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" mem ")); ok {
			n, _ := strconv.ParseInt(string(pages), 10, 64)
			sum += n * int64(os.Getpagesize())
		}
	}
	return sum
}

// inUse returns the number of sockets of a protocol from a text in the form of
// /proc/net/sockstat or sockstat6, which counts those of IPv6.
func inUse(text []byte, protocol string) int {
	_, rest, ok := bytes.Cut(append([]byte("\n"), text...), []byte("\n"+protocol+": inuse "))
	if f := bytes.Fields(rest); ok && len(f) > 0 {
		n, _ := strconv.Atoi(string(f[0]))
		return n
	}
	return 0
}

// queued adds up the bytes that wait in the sockets of a text in the form of
// /proc/net/tcp.
func queued(text []byte) int64 {
	var sum int64
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 5 {
			continue
		}
		if tx, rx, ok := bytes.Cut(f[4], []byte(":")); ok {
			out, outErr := strconv.ParseInt(string(tx), 16, 64)
			in, inErr := strconv.ParseInt(string(rx), 16, 64)
			if outErr == nil && inErr == nil {
				sum += out + in
			}
		}
	}
	return sum
}

// endFor ends the programs of the sandbox because of the kernel objects that they
// hold. A small share of the processor does not delay it.
func (s *sandbox) endFor(excess string) {
	release, err := s.hold()
	if err != nil {
		return
	}
	defer release()
	s.mu.Lock()
	s.exceeded = append(s.exceeded, excess)
	s.mu.Unlock()
	s.b.log.Warn("a sandbox holds too many kernel objects; its programs are ended", "sandbox", s.spec.ID, "held", excess)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // no caller waits for the watch
	defer cancel()
	if s.clearFreely(ctx) != nil {
		_ = s.killFreely()
	}
}
