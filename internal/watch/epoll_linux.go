package watch

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// The kernel counts epoll watches by host user (fs.epoll.max_user_watches), and nothing bounds them
// for a sandbox. An event on a file wakes all of its watches at once, with interrupts off. A watch
// of an epoll set is woken by each watch in that set, so a few thousand watches can be woken
// millions of times by one event, such as a read of a pipe by the server. If sandboxes have the
// server's own user, a program that takes all watches also keeps the server from watching its
// pipes. The server therefore counts the watches of each sandbox and ends the programs of a sandbox
// that holds too many.
//
// Between two counts programs can add only as many watches as the server has granted: init makes
// calls that add more wait (jail.Slot.Grant). The grant is so small that a sandbox that was within
// the bounds at a count cannot do harm before the next one.

const (
	maxWatches = 16384   // of one sandbox; waking them takes about 4 ms
	maxWoken   = 1 << 17 // wakes by one event, which take about 8 ms

	// Each close of a file of a pipe that only readers or only writers have wakes all watches of the
	// pipe, also when the program is being killed. A program can open many files of one pipe.
	maxOfPipe  = 64   // watches of one pipe
	maxOpened  = 4096 // descriptors of one pipe, besides openedEach for each process
	openedEach = 8
	maxClosed  = 1 << 19 // wakes by closing all files of a pipe, which take about 0.2 s

	// mostGranted is how many watches a sandbox may add between two counts. The grant is smaller if
	// so many watches belong to one file that sets of sets could wake them mostWoken times.
	mostGranted  = jail.FirstWatches
	leastGranted = 4
	mostWoken    = 90_000

	// An epoll set in a Unix socket, on its way to another process, is in no descriptor table and is
	// not counted. While a descriptor is on its way, or a count is unsure, the watch counts again
	// before it grants watches, for up to transitWait. If the descriptor does not arrive, maxUnseen
	// more may be added.
	transitWait = 500 * time.Millisecond
	transitRest = 10 * time.Millisecond
	maxUnseen   = 4 * mostGranted

	// A count that is unsure is made again, at most so many times.
	mostUnsure = 5

	// costOfGrant is the least that a grant takes from the sandbox's share of the server's time. It
	// bounds how fast programs can add watches.
	costOfGrant = time.Millisecond

	holdLimit = 300 * time.Millisecond // how long the search for pipes may delay the end of a sandbox

	// A program can hold the lock of an epoll set, for example while the kernel copies events to memory whose
	// mappings other threads change. Reading the set then waits. The counts of other sandboxes wait at
	// most mostPatience. A sandbox is ended if its count waits for more than mostSlow sets, or for mostStill for one.
	mostSlow  = 16
	mostStill = 2 * time.Second

	// mostNested is how many watches of epoll sets, and of sets of sets, the kernel lets one file
	// wake (path_limits in fs/eventpoll.c, without those of the file itself).
	mostNested = 500 + 100 + 50 + 10

	epollShare    = 8  // one sandbox may hold 1/epollShare of a user's watches
	epollAll      = 2  // all sandboxes together may hold 1/epollAll of them
	epollShortage = 64 // one sandbox may hold 1/epollShortage of them when the kernel has none left
	epollRest     = 9  // after each count, the server rests this many times as long as the count took
)

// Short requests a count of the watches at once, because the kernel refused to watch a descriptor
// for the server. It does not wait for the count.
func (o *Objects) Short() {
	o.short.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

// lookAtEpoll counts the epoll watches of the sandboxes that have run since their last count. If
// there is one, or short is set, it also counts those of all sandboxes with the server's user.
// Unless short is set, it does nothing before nextEpoll.
func (o *Objects) lookAtEpoll(live []*Target, short bool) {
	if !short && time.Now().Before(o.nextEpoll) {
		return
	}
	some := short || slices.ContainsFunc(live, func(s *Target) bool { return s.epollDue })
	var due []*Target
	for _, s := range live {
		if s.epollDue || some && s.Shares {
			due = append(due, s)
		}
		s.epollDue = false
	}
	if len(due) == 0 {
		return
	}
	took := o.boundEpoll(due, short)
	o.nextEpoll = time.Now().Add(epollRest * took)
}

// boundEpoll ends the programs of each sandbox whose watches exceed the bounds, or that holds more
// than its share of the watches of the server's user. If all sandboxes with that user hold too many
// together, it ends the programs of the largest one. short says that the kernel has no watches
// left, and makes the share smaller. It returns the processor time of the counts.
func (o *Objects) boundEpoll(all []*Target, short bool) (took time.Duration) {
	most := o.userWatches()
	share := most / epollShare
	if short {
		share = most / epollShortage
	}
	share = max(share, 1)
	sum, largest, held := 0, (*Target)(nil), 0
	for _, s := range all {
		limit, shares := maxWatches, s.Shares && most > 0
		if shares {
			limit = min(limit, share)
		}
		if s.epoll.idle() {
			s.progress.begin(time.Now())
		}
		asked, counted := s.epoll.ask(&o.patience, func() epollCount { return s.countEpoll(limit, false) })
		found := asked.value
		took += found.took
		if s.progress.stalls(time.Now(), counted) {
			o.end(s, "epoll sets that its programs keep from being read")
		}
		if !counted || s.progress.over { // also a count that has ended since: its programs are gone
			s.epollDue = true
			continue
		}
		if found.unsure && s.unsure < mostUnsure {
			s.unsure++
			s.epollDue = true
			continue
		}
		s.unsure = 0
		switch excess := found.excess(); {
		case found.watches > limit && limit < maxWatches:
			o.end(s, found.hides(limit)+epollExcess(share))
		case excess != "":
			o.end(s, excess)
		case shares:
			if sum += found.watches; found.watches > held {
				largest, held = s, found.watches
			}
		}
	}
	if largest != nil && sum > most/epollAll {
		o.end(largest, epollExcess(held))
	}
	return took
}

// HoldPipes prepares the end of a sandbox's processes: while the sandbox's pipes are held, closing
// them wakes no epoll watch. The caller calls release when the processes have ended. A sandbox in
// which few watches were added is not examined. The sandbox must stay open until HoldPipes returns.
func (s *Target) HoldPipes() (release func()) {
	if s == nil || !s.Slot.AddsWatches() {
		return func() {}
	}
	until := time.Now().Add(holdLimit)
	held := make(chan func(), 1)
	go func() { // a program may hold a lock of what it reads
		held <- s.countEpollOf(s.processes(), epollLook{limit: maxWatches, until: until}).hold(until)
	}()
	t := time.NewTimer(holdLimit)
	defer t.Stop()
	select {
	case release = <-held:
		return release
	case <-t.C: // the caller now kills the processes, which ends what the goroutine waits for
		return func() { go func() { (<-held)() }() }
	}
}

// hides begins a reason for ending a sandbox in which only hidden descriptors may hold more than limit
// watches.
func (c epollCount) hides(limit int) string {
	if c.watches-c.hidden > limit {
		return ""
	}
	return "descriptors that its processes hide (PR_SET_DUMPABLE), which may be "
}

// excess returns a description of the watches of which the sandbox holds too many, or "".
func (c epollCount) excess() string {
	switch {
	case c.watches > maxWatches:
		return c.hides(maxWatches) + fmt.Sprintf("more than %d epoll watches", maxWatches)
	case c.ofPipe > maxOfPipe:
		return fmt.Sprintf("more than %d epoll watches of one pipe", maxOfPipe)
	case c.closed > maxClosed:
		return fmt.Sprintf("epoll watches of a pipe that is open so often that closing it wakes them more than %d times", maxClosed)
	case c.opened > maxOpened+openedEach*c.processes:
		return fmt.Sprintf("more than %d descriptors of one pipe", maxOpened)
	case c.woken > maxWoken:
		return fmt.Sprintf("epoll watches of epoll sets, woken more than %d times by one event", maxWoken)
	}
	return ""
}

// grant returns how many watches may be added before the next count.
func (c epollCount) grant() int {
	n := mostGranted
	for n > leastGranted && (c.ofOne+n)*(1+n) > mostWoken {
		n--
	}
	return n
}

// GrantWatches counts the watches of a sandbox whose programs want to add more. It grants them
// some, or ends them if they hold too many. It is called as jail.Slot.OnWatches says, for a Target
// that was added. It rests after each count, so that it takes a tenth of a core at most.
func (o *Objects) GrantWatches(s *Target) {
	o.mu.Lock()
	_, watched := o.targets[s]
	o.mu.Unlock()
	if !watched {
		return
	}
	found := s.countEpoll(maxWatches, true)
	n, excess := found.grant(), found.excess()
	if s.transitFrom.IsZero() {
		s.transitFrom = time.Now()
	}
	if (excess == "" && found.transit || found.unsure) && time.Since(s.transitFrom) < transitWait {
		s.Pace(max(found.took, costOfGrant))
		time.AfterFunc(transitRest, func() { o.GrantWatches(s) })
		return
	}
	s.transitFrom = time.Time{}
	if !found.transit {
		s.unseen = 0
	} else if s.unseen += n; excess == "" && s.unseen > maxUnseen {
		excess = "epoll watches that cannot be counted, because descriptors wait in Unix sockets"
	}
	if excess != "" {
		s.End(excess)
	}
	s.Pace(max(found.took, costOfGrant))
	release, err := s.Hold()
	if err != nil {
		return
	}
	defer release()
	_ = s.Slot.Grant(n) // fails if the sandbox has ended
}

// userWatches returns how many epoll watches a user of the host may have; 0: unknown.
func (o *Objects) userWatches() int {
	if n := o.epollWatches; n > 0 {
		return n
	}
	text, err := os.ReadFile("/proc/sys/fs/epoll/max_user_watches")
	n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return 0
	}
	return n
}

// epollExcess returns the reason for ending a sandbox that held so many watches.
func epollExcess(held int) string {
	return fmt.Sprintf("%d epoll watches or more, which are the host user's (fs.epoll.max_user_watches)", held)
}
