package watch

import (
	"errors"
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
	maxDatagrams   = 4096 // UDP sockets likewise: listing 9500 takes 0.1 s, and the time grows with the square

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
	Watch  *Group                             // the watch that replaces the cgroup; nil: none
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

	mappings     beside[int64]
	mappingsFrom time.Time // earliest time of the next count of mappings; used by Objects.run alone
	mappingsEach int64     // most mappings of a process; 0: not read yet; likewise

	texts     beside[texts]
	textsFrom time.Time // earliest time of the next count of texts; used by Objects.run alone
	hadTexts  texts     // the largest counts of files that its programs had open; sent and kept are not set; used by Objects.run alone

	epoll       beside[epollCount]
	progress    progress // of epoll
	directories beside[string]
	sockets     beside[string]
	socketsFrom time.Time      // earliest time of the next count of sockets; used by Objects.run alone
	records     beside[int]    // its record locks
	wholes      beside[wholes] // its locks of whole files
	lastWholes  lastWholes     // the last result of wholes; used by Objects.run alone
	leftOut     beside[int]    // its locks of whole files where /proc/locks leaves out some
	mapped      beside[int]    // its descriptors, and its mappings of files that have a lock of a whole file
	files       beside[int]    // its open files
	devices     []uint64       // of its own file systems; used by Objects.run alone
	ending      atomic.Bool    // its programs are being ended

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
		for _, over := range []func() string{func() string { return s.overSockets(o) }, s.overUnix, s.overKills, func() string { return s.overTables(o) }, func() string { return s.overTexts(o) }, s.Over} {
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
	list := countLocks(f, devices)
	_ = f.Close()
	if list.lines <= maxLocks {
		return false
	}
	all, owners := o.all(), map[int]*Target{} // also those that were added while the locks were read
	for _, s := range all {
		owners[s.Slot.PID()] = s
	}
	known := true
	list.add(func(pid int) *Target { return ownerOf(pid, owners, parentOf) }, func(s *Target) int {
		n, done := ask(o, s, &s.mapped, "file locks", func() int {
			n := s.descriptors()
			if n <= maxLocks {
				n += s.countMapped(list.files)
			}
			return n
		})
		known = known && done
		return n.value
	})
	sure := o.addUnowned(&list, all) && known
	sure = (list.lines < lockLines || o.addRecords(&list, all)) && sure
	o.locksDue = !sure || len(list.kept) > 0
	others = sure
	for s, excess := range list.over() {
		if list.kept[s] { // an earlier count was used, and it may hold fewer by now: count again before it is ended
			s.lastWholes.from = time.Time{}
		} else {
			o.end(s, excess)
		}
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

// maxAncestry bounds how many parents of a process ownerOf reads: no more than the tasks of a sandbox.
const maxAncestry = 1 << 14

// ownerOf finds the sandbox of a process by its parents, or returns nil. Every process
// of a sandbox has its init above it, because init adopts the processes whose parent
// has ended. known has the inits of the sandboxes. ownerOf adds each process that it has read, so that parents are read
// once: a program can make thousands of processes, each the child of the last, that all hold locks.
func ownerOf(pid int, known map[int]*Target, parentOf func(pid int) (int, error)) (s *Target) {
	var row []int
	for range maxAncestry {
		found, there := known[pid]
		if there {
			s = found
			break
		}
		row = append(row, pid)
		parent, err := parentOf(pid)
		if err != nil || parent <= 1 {
			break
		}
		pid = parent
	}
	for _, p := range row {
		known[p] = s
	}
	return s
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
