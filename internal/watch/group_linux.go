package watch

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Limits are the limits that a Group enforces.
type Limits struct {
	MemoryBytes int64
	Cores       float64 // a fraction of a core; 0: not limited. Whole cores are limited by CPU affinity
	MaxTasks    int     // without namespaces only; otherwise the kernel enforces it
	Waits       bool    // its program has not come: it is measured less often until Restart
}

// Group replaces a cgroup where there is none. It measures the sandbox every few milliseconds. It
// ends its programs above the memory limit, and stops them while they are ahead of their fraction
// of a core. Its methods may be called concurrently. A nil Group limits nothing.
type Group struct {
	slot   *jail.Slot
	plain  bool   // without namespaces
	limits Limits // changed by run alone, between looks
	end    func(excess string)
	quit   chan struct{}
	done   chan struct{}
	once   sync.Once

	began     time.Time // from then on it may use its fraction of a core; guarded by sharing
	notBefore time.Time // earliest time of the next exact sum
	waits     atomic.Bool
	memory    atomic.Int64 // memory limit of the program that has come; 0: none has come
	spent     spent        // used by run alone
	looks     int          // number of calls of look; used by run alone
	missed    int          // looks that have missed a process, minus those that have not, see tally; used by run alone
	outside   bool         // processes are read from the host's /proc; used by run alone

	own      map[string]int64    // processes that programs have stopped themselves, and their rests, see noteOwn; used by run alone
	forking  map[string]*forking // by process number, see noteForking; used by run alone
	exact    exact               // used by run alone
	outlived outlived            // used by run alone
	mapped   mapped              // used by run alone
	buffers  buffers             // used by run alone, except by kept
	blind    map[string]int      // by process number: measurements in which it hid its memory since it last showed some, see mostBlind; used by run alone

	sharing sync.Mutex
	again   bool // Restart was called; guarded by sharing
	stopped bool // programs are stopped because they are ahead of their share of the processor; guarded by sharing
	free    bool // programs are not stopped for their share for now, because some are being ended; guarded by sharing
	spares  bool // others are not being ended meanwhile; guarded by sharing

	halted    time.Time     // when programs were last stopped by halt; guarded by sharing
	halts     int           // how often halt has stopped them; guarded by sharing
	continued time.Time     // when stopped programs last went on; guarded by sharing
	unnoted   time.Time     // when they last went on without a call of noteForking; guarded by sharing
	stoppedAt time.Duration // processor time when they were stopped; guarded by sharing
	resumed   int           // how often they went on since then although they were stopped; guarded by sharing

	mu    sync.Mutex
	peak  int64
	tasks int
	cpu   time.Duration // of the processes that were alive at the last look
	lost  time.Duration // of processes that have ended and whose time the kernel dropped, see spent
	ooms  int
}

const (
	watchEvery = 10 * time.Millisecond
	waitsEvery = 5                 // in multiples of watchEvery, while it waits
	clockTick  = time.Second / 100 // USER_HZ
)

// StartGroup starts to watch a sandbox of a jail of the given mode. The watch calls end to end
// programs that evade a limit; excess says what they have used. The caller calls Stop before it
// closes the sandbox.
func StartGroup(slot *jail.Slot, mode jail.Mode, limits Limits, end func(excess string)) *Group {
	w := &Group{slot: slot, end: end, plain: mode == jail.ModePlain, outside: mode == jail.ModePlain, limits: limits, forking: map[string]*forking{}, quit: make(chan struct{}), done: make(chan struct{}), began: time.Now()}
	w.waits.Store(limits.Waits)
	go w.run()
	return w
}

// Quit ends the watch and does not wait: a look that is under way may wait for a lock that a program
// holds. It may be called more than once.
func (w *Group) Quit() {
	if w != nil {
		w.once.Do(func() { close(w.quit) })
	}
}

// Stop ends the watch and returns when it has ended. It may be called more than once. The caller
// kills the programs first, so that none of them keeps a look from its end.
func (w *Group) Stop() {
	if w == nil {
		return
	}
	w.Quit()
	<-w.done
}

func (w *Group) run() {
	defer close(w.done)
	defer w.buffers.close()
	defer w.exact.reads.Wait() // they use the sandbox's descriptors
	defer w.outlived.close()
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-w.quit:
			return
		case <-w.slot.Gone():
			return
		case <-t.C:
		}
		if w.waits.Load() && n%waitsEvery != 0 {
			continue
		}
		if !w.lookStill() {
			return
		}
	}
}

// look measures the sandbox once. It returns false if it has ended the sandbox.
func (w *Group) look() bool {
	var rss, reserved int64
	var tasks int
	used, now := map[string]times{}, map[string]seen{}
	processes := w.processes()
	if w.looks++; w.looks%hiddenLooks == 0 && !w.outside && hides(descendants(strconv.Itoa(w.slot.PID()), nil), w.processes) {
		w.outside, w.spent.last, w.own, w.forking = true, nil, nil, map[string]*forking{} // the process numbers are those of the host from now on
		w.outlived.forget()
		processes = w.processes()
	}
	var stopped []string
	blind, missed := map[string]int{}, false
	for _, p := range processes {
		s, ok := w.see(p)
		missed = missed || w.misses(p, s, ok)
		if !ok {
			continue
		}
		used[p+" "+s.start], now[p+" "+s.start] = s.times, s
		tasks += s.threads
		if w.begins(p, s) {
			stopped = append(stopped, p)
		}
		rss += s.resident
		reserved += s.reserved
		if blind[p] = w.hidden(p, s); blind[p] > mostBlind {
			rss += w.limits.MemoryBytes + 1
		}
	}
	w.blind = blind
	w.tally(missed)
	w.wake(stopped)
	w.endForking()
	reaped := w.slot.CPU()
	cpu := w.spent.look(used, reaped)
	w.mapped.look(now)
	rss += w.outlived.look(now, &family{w: w})
	files := w.files()
	rss = w.withoutFiles(rss, w.limits.MemoryBytes-files, now)
	kernel := w.mappings(now, cpu+reaped, w.limits.MemoryBytes-rss-files)
	held := w.buffered(now, cpu+reaped, w.limits.MemoryBytes-rss-files-kernel)
	rest := kernel + held
	if rss+files+rest+reserved/tableShare > w.limits.MemoryBytes {
		rest += w.pageTables(processes)
	}
	if rss+w.outlived.unseen()+files+rest > w.limits.MemoryBytes {
		if time.Now().Before(w.notBefore) {
			return true
		}
		began := time.Now()
		var judged bool
		if rss, judged = w.exactly(w.limits.MemoryBytes - files - rest + kernel); !judged { // in rss, shared pages count for each process; exactly counts them once
			return true
		}
		rest -= kernel
		if held > 0 && rss+files+rest > w.limits.MemoryBytes {
			rest -= held
			held = w.bufferedStill(now, cpu+reaped, held, w.limits.MemoryBytes-rss-files-rest)
			rest += held
		}
		w.notBefore = time.Now().Add(min(exactRest*time.Since(began), 20*watchEvery)) // the longer exact sums of a sandbox take, the rarer they are
	}
	w.mu.Lock()
	w.tasks, w.cpu, w.lost = max(w.tasks, tasks-1), cpu-w.spent.lost, w.spent.lost
	w.mu.Unlock()
	if !w.judge(rss+files+rest, held, files, tasks) {
		return false
	}
	if excess := w.share(cpu + reaped); excess != "" {
		w.end(excess)
	}
	return true
}

// judge ends the programs of a sandbox that has too much memory or too many tasks. held is the part of memory in pipes and
// Unix sockets, and files is the part in the sandbox's file systems. judge returns false if it has ended the sandbox.
func (w *Group) judge(memory, held, files int64, tasks int) bool {
	exceeds := memory > w.limits.MemoryBytes
	byBuffers := exceeds && memory-held <= w.limits.MemoryBytes && held > w.limits.MemoryBytes/buffersShare
	w.mu.Lock()
	w.peak = max(w.peak, memory)
	if exceeds && !byBuffers { // with byBuffers, the result names what was exceeded instead of an OOM kill
		w.ooms++
	}
	w.mu.Unlock()
	switch {
	case byBuffers:
		w.end(excessOfBuffers(memory, held))
		w.buffers.forget()
	case exceeds || w.plain && tasks > w.limits.MaxTasks+1:
		return w.relieve(files)
	}
	return true
}

// files returns the memory in the sandbox's own file systems.
func (w *Group) files() (sum int64) {
	for _, d := range []int{w.slot.Dirs[jail.DirWork], w.slot.Dirs[jail.DirTemp], w.slot.Dirs[jail.DirShm]} {
		var fs unix.Statfs_t
		if !w.plain && d >= 0 && unix.Fstatfs(d, &fs) == nil {
			sum += int64(fs.Blocks-fs.Bfree)*fs.Bsize + int64(fs.Files-fs.Ffree)*inodeSize
		}
	}
	return sum
}

// inodeSize is the kernel's memory for a name in a tmpfs, as the kernel accounts it.
const inodeSize = 1024

// tableShare estimates page tables from address space: they take at most one byte in 512, plus a
// little for the tables of higher levels.
const tableShare = 256

// pageTables adds up the page tables of processes.
func (w *Group) pageTables(processes []string) int64 {
	var sum int64
	for _, p := range processes {
		s, _ := w.see(p)
		_, rest, ok := strings.Cut(w.read(s.path, "status"), "\nVmPTE:")
		if f := strings.Fields(rest); ok && len(f) > 0 {
			kb, _ := strconv.ParseInt(f[0], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

// relieve ends the programs of a sandbox that holds too much. If its files alone are above the
// memory limit, it ends the sandbox and returns false.
func (w *Group) relieve(files int64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // the watch is nobody's call
	defer cancel()
	if files <= w.limits.MemoryBytes && w.slot.Clear(ctx) == nil {
		return true
	}
	_ = w.slot.End()
	return false
}

// shareBurst is how far a sandbox may be ahead of its share: two measurements.
const shareBurst = 2 * watchEvery

// mostResumed is how often the programs of a sandbox may go on while they are stopped, before
// they are ended. A process that is started meanwhile does so once.
const mostResumed = 25

// share stops the programs while they have used more than their fraction of a core. A program can
// continue itself, by a timer that sends SIGCONT, so share stops it again. It returns why the
// programs have to be ended, or "".
func (w *Group) share(used time.Duration) (excess string) {
	cores := w.limits.Cores
	if cores <= 0 {
		return ""
	}
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if w.again {
		w.again, w.began = false, time.Now().Add(-time.Duration(float64(used)/cores))
	}
	allowed := time.Duration(cores * float64(time.Since(w.began)))
	switch {
	case w.free:
	case !w.stopped && used > allowed+shareBurst:
		w.stopped = w.slot.SignalAll(int(unix.SIGSTOP)) == nil
		w.stoppedAt, w.resumed = used, 0
	case w.stopped && used <= allowed:
		w.unnoted = time.Now()
		w.stopped = w.proceed() != nil
	case w.stopped && used > w.stoppedAt+shareBurst:
		_ = w.slot.SignalAll(int(unix.SIGSTOP))
		w.stoppedAt = used
		if w.resumed++; w.resumed > mostResumed {
			w.resumed = 0
			return "more processor time than its share, by programs that continue themselves while they are stopped"
		}
	}
	return ""
}

// proceed continues the programs. sharing is held.
func (w *Group) proceed() error {
	w.continued = time.Now()
	return w.slot.SignalAll(int(unix.SIGCONT))
}

// exactRest is the rest after an exact sum, as a multiple of the time that the sum took.
const exactRest = 9

// hiddenLooks is the number of calls of look between two searches for processes that the server
// cannot see in the sandbox's /proc. Such a process runs a file of another user that is executable
// and not readable.
const hiddenLooks = 25

// hides reports whether list, which is called afterwards, leaves out one of found that lives on. found has numbers of the host.
func hides(found []string, list func() []string) bool {
	listed := map[string]bool{}
	for _, p := range list() {
		listed[p] = true
	}
	for _, p := range found {
		if n := numberInside(p); n != "" && !listed[n] && n == numberInside(p) {
			return true
		}
	}
	return false
}

// numberInside returns the number of a process in its own pid namespace, or "" if it has ended.
func numberInside(p string) string {
	text, _ := os.ReadFile("/proc/" + p + "/status")
	_, rest, _ := strings.Cut(string(text), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	if len(numbers) == 0 {
		return ""
	}
	return numbers[len(numbers)-1]
}

// descendants lists a process of the host and all below it.
func descendants(pid string, found []string) []string {
	found = append(found, pid)
	for _, c := range jail.Children(pid) {
		found = descendants(c, found)
	}
	return found
}

// Ended takes into account what init reported of a process that has ended.
func (w *Group) Ended(e jail.Exit) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.peak = max(w.peak, e.MaxRSS)
	w.mu.Unlock()
}

// Usage returns what the sandbox has used. ended is the processor time of the processes that
// init has waited for.
func (w *Group) Usage(ended time.Duration) cgroup.Usage {
	if w == nil {
		return cgroup.Usage{CPU: ended, PeakTasks: 1}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return cgroup.Usage{PeakMemory: w.peak, CPU: max(ended, w.cpu) + w.lost, PeakTasks: max(w.tasks, 1), OOMKills: w.ooms}
}

// Restart is called when a waiting sandbox gets its program, with the program's memory limit. From then on the group
// measures the sandbox as often as others. The program's fraction of a core counts from that time, so processor time
// that the sandbox did not use while it waited does not add to it.
func (w *Group) Restart(memoryBytes int64) {
	if w == nil {
		return
	}
	w.memory.Store(memoryBytes)
	w.sharing.Lock()
	defer w.sharing.Unlock()
	w.again = true
	w.waits.Store(false)
}

// LiftQuota continues the programs that the watch has stopped, and suspends the limit of the
// processor until RestoreQuota.
func (w *Group) LiftQuota() error { return w.lift(false) }

func (w *Group) lift(spares bool) error {
	w.sharing.Lock()
	defer w.sharing.Unlock()
	w.free, w.spares = true, spares
	if !w.stopped {
		return nil
	}
	w.stopped, w.unnoted = false, time.Now()
	return w.proceed()
}

// Yield gives the processes of the sandbox processor time only if nothing else wants it. They keep
// that until they end.
func (w *Group) Yield() error {
	for _, p := range descendants(strconv.Itoa(w.slot.PID()), nil) {
		tasks, _ := readNames("/proc/" + p + "/task")
		for _, t := range tasks {
			if id, err := strconv.Atoi(t); err == nil {
				_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
			}
		}
	}
	return nil
}

// RestoreQuota undoes LiftQuota.
func (w *Group) RestoreQuota() error {
	w.sharing.Lock()
	defer w.sharing.Unlock()
	w.free, w.spares = false, false
	return nil
}

// Sparing is a Group for who ends only some of the programs. The others go on, so they may have to be stopped while their memory is
// measured.
type Sparing struct{ *Group }

// LiftQuota is Group.LiftQuota.
func (s Sparing) LiftQuota() error { return s.lift(true) }
