package watch

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// maxTexts is how many files of /proc/PID/fdinfo the programs of a sandbox without a cgroup may have open. The kernel
// keeps the text of such a file from its first read until it is closed. The text names all locks that the process has
// of a file, and all watches of an epoll set: with maxLocks locks it has 512 KiB, and with 16 384 watches 2 MiB. Only
// the memory limit of a cgroup counts it. Ordinary programs have one open at a time.
const maxTexts = 64

// texts counts such files of the processes of a sandbox.
type texts struct {
	open int // descriptors
	sent int // the most that calls may keep that wait to send files
	kept int // likewise, and files that calls wait for

	began time.Time
}

// overTexts returns a description if the processes have too many such files open, and "" otherwise. Once they have had
// one open, calls that wait to send files count with the most files that they may keep. While the sandbox is ahead of its
// share of the server's time, overTexts does nothing, as overTables.
func (s *Target) overTexts(o *Objects) string {
	if s.Group != nil || time.Now().Before(s.textsFrom) {
		return ""
	}
	processes := s.processes()
	count, done := ask(o, s, &s.texts, "open files of /proc/PID/fdinfo", func() texts { return countTexts(processes) })
	if !done {
		return ""
	}
	s.textsFrom = time.Now().Add(s.restAfter(count.took))
	release, err := s.Hold()
	if err != nil {
		return ""
	}
	defer release()
	if s.Slot.Ended() { // its pid may belong to another process now
		return ""
	}
	n := count.value
	s.Watch.kept(n.kept, n.began)
	s.readsTexts = s.readsTexts || n.open > 0
	if s.readsTexts && n.open+n.sent > maxTexts {
		return fmt.Sprintf("more than %d open files of /proc/PID/fdinfo", maxTexts)
	}
	return ""
}

// countTexts counts such files of processes, up to a few more than a sandbox may have open.
func countTexts(processes []string) (n texts) {
	n.began = time.Now()
	for _, p := range processes {
		named, sent := filesOfCalls("/proc/" + p)
		n.sent, n.kept = n.sent+sent, n.kept+named+sent
		dir := filesOf(p)
		names, _ := readNames(dir)
		for _, name := range names {
			if to, err := os.Readlink(dir + "/" + name); err == nil && strings.Contains(to, "/fdinfo/") {
				n.open++
			}
		}
		if n.open > maxTexts {
			break
		}
	}
	return n
}
