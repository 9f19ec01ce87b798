package watch

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Page tables can name 512 times their own size in pages that take no memory, such as the zero page. To
// end a process, the kernel visits all of these pages, which takes 100 times as long as freeing the same
// amount of memory. No signal ends a call that visits them for a program, such as a read of
// /proc/self/smaps, and each task can be in such a call. The watch therefore bounds the page tables that
// the memory of their process does not explain.
const (
	maxTables      = 64 << 20  // bytes in all processes of a sandbox; visiting their pages takes 0.5 s
	maxTableVisits = 512 << 20 // bytes in one process, multiplied by the tasks of the sandbox; about 4 s

	// explained is how many bytes of anonymous memory explain a byte of page tables. Without gaps,
	// 512 bytes do.
	explained = 256
)

// A sandbox that is ahead of its share of the server's time is not counted for at most mostRest, or for tablesRest times
// the processor time of its last count if that is longer.
const (
	mostRest   = 500 * time.Millisecond
	tablesRest = 9
)

// overTables returns a description if the sandbox has too many page tables without memory, or too many open
// directories, and "" otherwise. While the sandbox is ahead of its share of the server's time, it does nothing: a rest here would
// delay the counts of other sandboxes.
func (s *Target) overTables(o *Objects) string {
	if time.Now().Before(s.tablesFrom) {
		s.counted = -idleCPU // count it again
		return ""
	}
	count := timed(func() string { return s.countTables(o) })
	s.restFrom(time.Now(), count.took)
	return count.value
}

// restFrom charges the sandbox for a count of its page tables or directories, and sets the time of the next one. The charge is
// the processor time of the count, took, and not its duration: a program could delay the count to be counted less often. It
// never makes the next count earlier.
func (s *Target) restFrom(now time.Time, took time.Duration) {
	if from := now.Add(s.restAfter(took)); from.After(s.tablesFrom) {
		s.tablesFrom = from
	}
}

func (s *Target) restAfter(took time.Duration) time.Duration {
	return min(s.Spend(took), max(mostRest, tablesRest*took))
}

// countTables is overTables without a rest.
func (s *Target) countTables(o *Objects) string {
	processes := s.processes()
	var sum, most, tasks, mappings int64
	for _, p := range processes {
		n := tablesOf(p)
		sum, most, tasks, mappings = sum+n.tables, max(most, n.tables), tasks+n.threads, mappings+s.mostMappings(n.pages)
	}
	excess := excessOfTables(sum, most, tasks)
	if excess == "" {
		excess = s.overMappings(o, processes, mappings)
	}
	if excess == "" {
		excess = s.overDirectories(o, processes, int(tasks))
	}
	if excess == "" {
		excess = s.overLeftOut(o, processes, listsAll())
	}
	if excess == "" {
		return ""
	}
	release, err := s.Hold()
	if err != nil {
		return ""
	}
	defer release()
	if s.Slot.Ended() { // its pid may belong to another process now
		return ""
	}
	return excess
}

// excessOfTables is overTables for sum bytes of page tables without memory, most of them in one process.
func excessOfTables(sum, most, tasks int64) string {
	switch {
	case sum > maxTables:
		return fmt.Sprintf("more than %d MiB of page tables without memory", maxTables>>20)
	case most*tasks > maxTableVisits:
		return fmt.Sprintf("more than %d MiB of page tables without memory, multiplied by its tasks", maxTableVisits>>20)
	}
	return ""
}

// sizes are those of a process in /proc/PID/status.
type sizes struct {
	tables  int64 // bytes of page tables that its memory does not explain
	threads int64
	pages   int64 // of address space
}

// tablesOf returns the sizes of a process. If its first thread has ended, the kernel shows them only at the others.
func tablesOf(p string) sizes {
	text, err := os.ReadFile("/proc/" + p + "/status")
	if err != nil {
		return sizes{}
	}
	found, ok := tablesIn(string(text))
	if ok || found.threads < 2 {
		return found
	}
	names, _ := readNames("/proc/" + p + "/task")
	for _, t := range names {
		if text, err := os.ReadFile("/proc/" + p + "/task/" + t + "/status"); err == nil {
			if other, ok := tablesIn(string(text)); ok {
				other.threads = found.threads
				return other
			}
		}
	}
	return found
}

// tablesIn is tablesOf for a text in the form of /proc/PID/status. ok reports whether the text shows
// memory.
func tablesIn(text string) (found sizes, ok bool) {
	number := func(name string) (n int64, ok bool) {
		word, ok := inStatus(text, name)
		n, _ = strconv.ParseInt(word, 10, 64)
		return n, ok
	}
	found.threads, _ = number("Threads")
	kib, ok := number("VmPTE")
	memory, _ := number("RssAnon")
	size, _ := number("VmSize")
	found.tables, found.pages = max(kib-memory/explained, 0)<<10, size<<10/int64(os.Getpagesize())
	return found, ok
}
