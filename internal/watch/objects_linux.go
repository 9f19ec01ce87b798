package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Limits of one sandbox for the kernel objects that no memory limit counts. docs/kernel-objects.md
// lists all of them.
const (
	maxLocks       = 4096 // record locks and flock
	allLocks       = 8192 // likewise, of all sandboxes together
	maxConnections = 8192 // TCP sockets of its network namespace, including those not accepted yet

	maxQueued  = 32 << 20  // bytes in all TCP and UDP sockets without a cgroup; with one, twice that in UDP sockets only
	fewSockets = 64        // fewer sockets than this cannot hold maxQueued bytes
	maxOnePort = 16        // UDP sockets of one port, all of which may get one datagram
	maxCorked  = 64 << 10  // bytes of a datagram that a program has begun and not sent (MSG_MORE)
	maxEach    = 256 << 10 // queued bytes assumed for each unlisted socket, besides maxCorked
	maxNetFile = 8 << 20   // bytes read of a list of sockets, some 50 000 sockets

	// The watch reads the CPU time of each sandbox every objectsEvery. It counts what a sandbox
	// holds if the CPU time has grown by idleCPU since the last count. It also counts if the time
	// has grown at all and the last count is idleLong ago. In idleCPU a program can make ten times
	// what it may hold. Programs must run to make kernel objects, so an idle sandbox is not
	// counted.
	objectsEvery = 200 * time.Millisecond
	idleCPU      = 50 * time.Millisecond
	idleLong     = time.Second

	// lockLines bounds a reading of /proc/locks: the kernel takes longer for each further line. 8000 lines take 12 ms of
	// processor time, and 27 000 take 0.2 s. So all sandboxes together hold few: as long as the watch rests after a
	// reading, a sandbox can take any number.
	lockLines = 1 << 16
	// lockRest bounds the cost on a host with many locks of its own. After it has read
	// them, the watch waits this many times as long as the reading took.
	lockRest = 20
)

// Target is a sandbox whose kernel objects are counted.
type Target struct {
	Slot   *jail.Slot
	Group  *cgroup.Group                      // nil: none
	Plain  bool                               // without namespaces
	Shares bool                               // its programs have the server's host user
	Hold   func() (release func(), err error) // keeps the slot open until release is called; fails if it is closed
	Pace   func(cost time.Duration)           // takes cost from the sandbox's share of the server's time; may sleep
	Spend  func(time.Duration) time.Duration  // is Pace that does not sleep, but returns for how long it would
	End    func(excess string)                // ends the programs; excess says what they hold too many of
	Over   func() string                      // returns what else the programs use too much of, or ""; nil: nothing
	Waits  func() bool                        // reports whether its program has not come; nil: it has

	kills     kills         // processes that the memory limit has ended
	counted   time.Duration // CPU time when its kernel objects were last counted; used by Objects.run alone
	countedAt time.Time     // when that was; likewise
	epollDue  bool          // it has run since its epoll watches were counted; likewise
	unseen    int           // epoll watches granted since a count that could see all of them; used by GrantWatches alone

	tablesFrom time.Time // earliest time of the next count of its page tables; used by Objects.run alone

	texts      beside[texts]
	textsFrom  time.Time // earliest time of the next count of texts; used by Objects.run alone
	readsTexts bool      // its programs have had one open; used by Objects.run alone

	epoll       beside[epollCount]
	progress    progress // of epoll
	directories beside[string]
	records     beside[int] // its record locks
	wholes      beside[int] // its locks of whole files
	mapped      beside[int] // its descriptors, and its mappings of files that have such a lock
	files       beside[int] // its open files
	devices     []uint64    // of its own file systems; used by Objects.run alone
	ending      atomic.Bool // its programs are being ended

	unsure      int       // counts of epoll watches in a row that were unsure; used by Objects.run alone
	transitFrom time.Time // when GrantWatches began to count again; used by GrantWatches alone
}

// Objects counts the kernel objects of sandboxes. It ends the programs of a sandbox that
// holds too many. It wakes at intervals while it has a Target. Its methods may be called
// concurrently.
type Objects struct {
	epollWatches int // limit of a user; 0: as the kernel says

	mu      sync.Mutex
	targets map[*Target]struct{} // guarded by mu
	ticker  *ticker              // nil before the first Target and after the end; set with mu held
	stopped bool                 // guarded by mu

	runs      sync.WaitGroup
	locksDue  bool        // a sandbox has run since locks were counted; used by run alone
	filesDue  bool        // open files are to be counted again; used by run alone
	nextLook  time.Time   // earliest time of the next count of locks; used by run alone
	nextFiles time.Time   // earliest time of the next count of open files; used by run alone
	nextEpoll time.Time   // earliest time of the next count of epoll watches; used by run alone
	patience  patience    // of the present look; used by run alone
	short     atomic.Bool // the kernel has refused to watch a descriptor for the server
}

// NewObjects returns a watch without sandboxes. epollWatches is how many epoll watches a user may
// have; 0: as the kernel says. The caller calls Stop, and Wait to wait for the end.
func NewObjects(epollWatches int) *Objects {
	return &Objects{epollWatches: epollWatches, targets: map[*Target]struct{}{}}
}

// Add starts to count the objects of a sandbox.
func (o *Objects) Add(t *Target) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets[t] = struct{}{}
	if o.stopped {
		return
	}
	if o.ticker == nil {
		o.ticker = newTicker(objectsEvery)
		o.runs.Go(o.run)
	}
	if len(o.targets) == 1 {
		o.ticker.start()
	}
}

// Remove stops counting a sandbox. It does not wait for a count that is under way.
func (o *Objects) Remove(t *Target) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.targets, t)
	o.restLocked()
}

// restLocked stops the ticks if there is nothing to count, so that a short run wakes nobody. mu is
// held.
func (o *Objects) restLocked() {
	if len(o.targets) == 0 && o.ticker != nil && !o.stopped {
		o.ticker.rest()
	}
}

// Stop ends the watch for good. It does not wait; Wait does.
func (o *Objects) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	o.wakeLocked()
}

// wakeLocked makes the next count start at once. mu is held.
func (o *Objects) wakeLocked() {
	if o.ticker != nil {
		o.ticker.soon()
	}
}

// Wait returns when counting has ended. The caller calls Stop first.
func (o *Objects) Wait() { o.runs.Wait() }

// run counts at the end of each interval, so that short runs are never counted.
func (o *Objects) run() {
	for {
		o.ticker.wait()
		live, stopped := o.live()
		if stopped {
			return
		}
		if len(live) > 0 {
			o.look(live, o.short.Swap(false))
		}
	}
}

// live returns the sandboxes to count. After Stop it ends the ticker.
func (o *Objects) live() (live []*Target, stopped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		o.ticker.close()
		o.ticker = nil
		return nil, true
	}
	o.restLocked()
	return slices.Collect(maps.Keys(o.targets)), false
}

// look counts the objects of the sandboxes that have run since their last count.
func (o *Objects) look(live []*Target, short bool) {
	o.patience = patience{}
	for _, s := range live {
		if !s.hasRun() {
			continue
		}
		o.locksDue, s.epollDue = true, true
		for _, over := range []func() string{s.overSockets, s.overUnix, s.overKills, func() string { return s.overTables(o) }, func() string { return s.overTexts(o) }, s.Over} {
			if over == nil {
				continue
			}
			if excess := over(); excess != "" {
				o.end(s, excess)
				s.counted = -idleCPU // count it again
			}
		}
	}
	o.lookAtEpoll(live, short)
	if (o.locksDue || o.filesDue) && time.Now().After(o.nextFiles) {
		text, _ := os.ReadFile("/proc/sys/fs/file-nr")
		o.filesDue = o.lookAtFiles(live, string(text))
	}
	if !o.locksDue || time.Now().Before(o.nextLook) {
		return
	}
	o.locksDue = false
	if others := timed(o.lookAtLocks); others.value {
		o.nextLook = time.Now().Add(lockRest * others.took)
	}
}

// hasRun reports whether the sandbox may have run since its last count. If so, it records the
// present as the time of its count. Without a cgroup it returns true, but only each idleLong while
// the sandbox waits for its program.
func (s *Target) hasRun() bool {
	now := time.Now()
	if s.Group == nil {
		if s.Waits != nil && s.Waits() && now.Sub(s.countedAt) < idleLong { // many may wait for minutes
			return false
		}
		s.countedAt = now
		return true
	}
	used, ok := s.Group.CPU()
	return s.hasUsed(used, ok, now)
}

// hasUsed is hasRun for a sandbox that has used the given CPU time. It returns true if ok is false:
// the time is unknown. It also returns true if the sandbox has used idleCPU since its last count,
// or if it has used any CPU time and that count is idleLong ago.
func (s *Target) hasUsed(used time.Duration, ok bool, now time.Time) bool {
	if s.countedAt.IsZero() {
		s.countedAt = now
	}
	little := used == s.counted || used > s.counted && used < s.counted+idleCPU && now.Sub(s.countedAt) < idleLong
	if ok && little {
		return false
	}
	s.counted, s.countedAt = used, now
	return true
}

// lookAtLocks ends the programs of sandboxes that hold too many locks. others reports
// whether the machine has many locks and no sandbox holds too many.
func (o *Objects) lookAtLocks() (others bool) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return false
	}
	devices := map[uint64]*Target{}
	for _, s := range o.all() {
		for _, d := range s.ownDevices() {
			devices[d] = s
		}
	}
	locks := countLocks(f, devices)
	_ = f.Close()
	if locks.lines <= maxLocks {
		return false
	}
	all, inits := o.all(), map[int]*Target{} // also those that were added while the locks were read
	for _, s := range all {
		inits[s.Slot.PID()] = s
	}
	known := true
	locks.add(func(pid int) *Target { return ownerOf(pid, inits) }, func(s *Target) int {
		n, done := ask(o, s, &s.mapped, "file locks", func() int {
			n := s.descriptors()
			if n <= maxLocks {
				n += s.countMapped(locks.files)
			}
			return n
		})
		known = known && done
		return n.value
	})
	sure := o.addUnowned(&locks, all) && known
	sure = (locks.lines < lockLines || o.addRecords(&locks, all)) && sure
	o.locksDue = !sure
	others = sure
	for s, excess := range locks.over() {
		o.end(s, excess)
		o.locksDue = true
		others = false
	}
	return others
}

// all returns the sandboxes.
func (o *Objects) all() []*Target {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.targets))
}

// maxAncestry bounds how many parents of a process ownerOf reads.
const maxAncestry = 4096

// ownerOf finds the sandbox of a process by its parents, or returns nil. Every process
// of a sandbox has its init above it, because init adopts the processes whose parent
// has ended.
func ownerOf(pid int, owners map[int]*Target) *Target {
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
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	parent, ok := inStatus(string(text), "PPid")
	if !ok {
		return 0, errors.New("no parent in status")
	}
	return strconv.Atoi(parent)
}

// inStatus returns the first word of a line of a text in the form of /proc/PID/status. The program cannot forge a line:
// the kernel escapes newlines in its name. No lock of a program delays a read of that file.
func inStatus(text, name string) (word string, ok bool) {
	_, rest, found := strings.Cut(text, "\n"+name+":")
	if line := strings.Fields(rest); found && len(line) > 0 {
		return line[0], true
	}
	return "", false
}

// readNet reads a file of the sandbox's network namespace. It returns nil if it cannot.
func (s *Target) readNet(name string) []byte {
	release, err := s.Hold()
	if err != nil {
		return nil
	}
	defer release()
	f, err := os.Open("/proc/" + strconv.Itoa(s.Slot.PID()) + "/net/" + name)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxNetFile))
	if err != nil || s.Slot.Ended() { // its pid may belong to another process now
		return nil
	}
	return text
}

// overSockets returns a description of the sockets of which the sandbox holds too many, or "".
func (s *Target) overSockets() string {
	if s.Plain || !s.Slot.MayHaveSockets() { // programs at tier L1 cannot make sockets
		return ""
	}
	v4, v6 := s.readNet("sockstat"), s.readNet("sockstat6")
	tcp, udp := inUse(v4, "TCP")+inUse(v6, "TCP6"), inUse(v4, "UDP")+inUse(v6, "UDP6")
	if tcp > maxConnections {
		return fmt.Sprintf("more than %d TCP connections", maxConnections)
	}
	if udp > maxOnePort && mostOnePort(s.readNet("udp"), s.readNet("udp6")) > maxOnePort {
		return fmt.Sprintf("more than %d UDP sockets of one port", maxOnePort)
	}
	hidden := 0
	if tcp+udp+fewSockets < usedSockets(v4) { // some may be of the Unix family
		hidden = s.unlisted()
	}
	lists, most := []string{"tcp", "tcp6", "udp", "udp6"}, int64(maxQueued)
	if s.Group != nil { // the cgroup counts what TCP queues, and what UDP queues except errors and timestamps
		lists, most, tcp = lists[2:], 2*maxQueued, 0
	}
	if tcp+udp+hidden < fewSockets {
		return ""
	}
	sum := int64(hidden) * maxCorked
	if s.Group == nil {
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

// unlisted returns how many sockets of the sandbox are in no list of their protocol. A socket
// leaves the list when its connection ends or is aborted, and keeps its queued bytes.
func (s *Target) unlisted() int {
	protocols := s.readNet("protocols")
	return usedSockets(s.readNet("sockstat")) - listed(protocols)
}

// listed adds up the sockets of a text in the form of /proc/net/protocols.
func listed(text []byte) (sum int) {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 2 {
			n, _ := strconv.Atoi(string(f[2])) // the heading of the table is not a number
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

// mostOnePort returns the largest number of sockets that have one local port, from texts in the form of
// /proc/net/udp. A datagram to a multicast address goes to all of them.
func mostOnePort(lists ...[]byte) (most int) {
	ports := map[string]int{}
	for _, text := range lists {
		for line := range bytes.Lines(text) {
			f := bytes.Fields(line)
			if len(f) < 5 || !bytes.HasSuffix(f[0], []byte(":")) {
				continue
			}
			port := string(f[1][bytes.LastIndexByte(f[1], ':')+1:])
			ports[port]++
			most = max(most, ports[port])
		}
	}
	return most
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
