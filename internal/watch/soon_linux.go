package watch

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// This file keeps one sandbox from delaying the counts of others. Many files of /proc/PID wait for locks of the process,
// which a program can hold: stat, syscall, maps, and the links in fd, while an execve waits for other threads that change
// the mappings, and fdinfo of an epoll set. So Objects.run reads none of them itself. It reads files of init, and of other
// processes only status, children, the lists in task and fd, and the number of descriptors. Every other read is part of a
// count that is made beside it. Such a count does not keep the sandbox open (Target.Hold) while it reads.

// beside makes a count in a goroutine of its own, because it may wait for what a program holds. Its methods are
// used by Objects.run alone. In this package, "beside" means that a count runs in such a goroutine.
type beside[T any] struct {
	result chan outcome[T]
	asked  time.Time     // when a look last asked for the count that is under way
	waited time.Duration // how long looks have seen it wait
	used   time.Duration // processor time of its thread at the last look
	thread *atomic.Int64 // number of the thread that makes the count; 0: it has not begun to run
	stood  bool          // stands has returned true for the count
}

// outcome is what a count has found, and its cost.
type outcome[T any] struct {
	value T
	took  time.Duration // processor time
}

// idle reports whether the next call of ask begins a count.
func (b *beside[T]) idle() bool { return b.result == nil }

// ask begins a count, unless one is under way, and waits for it at most for what is left of patience. It does not wait for a
// count that began before. done is false if the count has not ended. The next call then asks for its result.
func (b *beside[T]) ask(patience *patience, count func() T) (result outcome[T], done bool) {
	began, wait := time.Now(), time.Duration(0)
	if b.idle() {
		c := make(chan outcome[T], 1)
		thread := new(atomic.Int64)
		*b = beside[T]{result: c, asked: began, thread: thread}
		wait = patience.left()
		go func() {
			c <- timed(func() T {
				thread.Store(int64(unix.Gettid()))
				return count()
			})
		}()
	} else if thread := b.thread.Load(); thread != 0 {
		used := timeOf(thread)
		b.waited += max(min(began.Sub(b.asked), mostBetween)-leastRunning*(used-b.used), 0)
		b.used = used
	}
	b.asked = began
	if result, done = await(b.result, wait); done {
		b.result = nil
	}
	patience.waited += time.Since(began)
	return result, done
}

// await receives a result, and waits for it at most so long. A result that is there is received in any case: of several
// cases that are ready, select takes one at random.
func await[T any](from <-chan T, most time.Duration) (result T, done bool) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case result = <-from:
		return result, true
	case <-t.C:
	}
	select {
	case result = <-from:
		return result, true
	default:
		return result, false
	}
}

// mostBetween is the most of the time between two looks that counts as waiting of a count: in a longer time the server
// itself may have been stopped.
const mostBetween = 2 * objectsEvery

// leastRunning is the part of a processor, 1/leastRunning, that a count uses if it is not blocked. On a busy machine a count of
// many objects takes seconds although no program delays it. The time in which it ran does not count as waiting.
const leastRunning = 20

// timeOf returns the processor time of a thread of the server; 0: it has none.
func timeOf(thread int64) time.Duration {
	const perThread = 6 // CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED (linux/posix-timers_types.h)
	var t unix.Timespec
	_ = unix.ClockGettime(int32(^thread<<3|perThread), &t)
	return time.Duration(t.Nano())
}

// stands reports whether the count has waited for longer than mostStill. It returns true at most once for each count,
// because the caller then ends the programs, and others may run when the count ends.
func (b *beside[T]) stands() bool {
	if b.idle() || b.stood || b.waited <= mostStill {
		return false
	}
	b.stood = true
	return true
}

// timed makes a count and measures its processor time.
func timed[T any](count func() T) outcome[T] {
	runtime.LockOSThread() // for its clock
	defer runtime.UnlockOSThread()
	began := threadTime()
	value := count()
	return outcome[T]{value, threadTime() - began}
}

// patience is how long one look waits for the counts that it begins. It waits mostPatience for all of them together. Once that
// time is used up, it waits leastPatience for each further count.
type patience struct{ waited time.Duration }

func (p *patience) left() time.Duration { return max(mostPatience-p.waited, leastPatience) }

// ask is beside.ask for a count of what the programs of a sandbox hold. It ends programs that keep the count waiting for
// too long. It drops the result of that count, because other programs may run when the count ends. The next call begins
// another count.
func ask[T any](o *Objects, s *Target, b *beside[T], what string, count func() T) (result outcome[T], done bool) {
	if result, done = b.ask(&o.patience, count); b.stands() {
		o.end(s, what+" that its programs keep from being counted")
	}
	if b.stood {
		return outcome[T]{}, false
	}
	return result, done
}

// processes lists the processes of the sandbox. Their numbers may belong to others soon; then the sandbox has ended, and
// nothing that is found of them has an effect.
func (s *Target) processes() []string {
	release, err := s.Hold()
	if err != nil {
		return nil
	}
	defer release()
	found := descendants(strconv.Itoa(s.Slot.PID()), nil)
	if s.Slot.Ended() {
		return nil
	}
	return found
}

// progress tracks the counts of a sandbox's epoll watches. seen and since are used by Objects.run alone.
type progress struct {
	steps atomic.Int64 // descriptors that were read
	slow  atomic.Int64 // epoll sets that took long to read, since the count has begun
	seen  int64        // steps at the last look
	since time.Time    // when the count began, or steps was first seen to have this value
	over  bool         // stalls has returned true for the count
}

// read notes that an epoll set was read.
func (p *progress) read(took time.Duration) {
	if took > mostPatience {
		p.slow.Add(1)
	}
}

// begin notes that a count begins.
func (p *progress) begin(now time.Time) {
	p.slow.Store(0)
	p.seen, p.since, p.over = p.steps.Load(), now, false
}

// stalls reports whether programs keep the count from going on: it waits for many sets, or has read nothing for
// mostStill. counted says that it has ended, so it does not stand still. stalls returns true at most once for each
// count, because the caller then ends the programs, and others may run when the count ends.
func (p *progress) stalls(now time.Time, counted bool) bool {
	if n := p.steps.Load(); n != p.seen {
		p.seen, p.since = n, now
	}
	if p.over || p.slow.Load() <= mostSlow && (counted || now.Sub(p.since) <= mostStill) {
		return false
	}
	p.over = true
	return true
}

// end ends the programs of a sandbox in the background, because that can take seconds. Until it is done, further
// calls for the sandbox do nothing.
func (o *Objects) end(s *Target, excess string) {
	if s.ending.Swap(true) {
		return
	}
	o.runs.Go(func() {
		defer s.ending.Store(false)
		s.End(excess)
	})
}
