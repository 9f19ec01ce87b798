package stats

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processUsage reads this process's resident memory in bytes and its CPU time.
func processUsage() (rss int64, cpu time.Duration, ok bool) {
	b, err := os.ReadFile("/proc/self/statm")
	f := strings.Fields(string(b))
	var ru unix.Rusage
	if err != nil || len(f) < 2 || unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0, 0, false
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), err == nil
}
