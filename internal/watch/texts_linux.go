package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// maxTexts is how many files of /proc/PID/fdinfo the programs of a sandbox without a cgroup may have open. The kernel
// keeps the text of such a file from its first read until it is closed. The text names all locks that the process has
// of a file, and all watches of an epoll set: with maxLocks locks it has 512 KiB, and with 16 384 watches 2 MiB. Only
// the memory limit of a cgroup counts it. Ordinary programs have one open at a time.
const maxTexts = 64

// maxProcFiles is how many files of /proc these programs may have open in all. Besides its text, an open file such as
// /proc/PID/maps keeps some 9 KiB of a process that has ended: its memory descriptor and its highest page table.
const maxProcFiles = 1024

// texts counts the open files of /proc of a sandbox.
type texts struct {
	open   int // descriptors of files of /proc/PID/fdinfo
	files  int // descriptors of all files of /proc
	hidden int // descriptors of processes that hide them, each of which may be of such a file
	sent   int // the most files that sendmsg calls which wait may keep open
	kept   int // sent, and the files that other waiting calls name

	began time.Time
}

// over returns a description if too many files are open, and "" otherwise. before has the highest earlier counts. The files
// that waiting calls send are not known: they count as files of fdinfo only if the programs have had one open, and as files
// of /proc only if the programs have had many.
func (n texts) over(before texts) string {
	const many = maxProcFiles / 8
	sentIf := func(had bool) int {
		if had {
			return n.sent
		}
		return 0
	}
	hidden := ""
	if n.hidden > 0 {
		hidden = fmt.Sprintf(", as which %d descriptors of unreadable processes count", n.hidden)
	}
	switch {
	case n.open+n.hidden+sentIf(max(n.open, before.open) > 0) > maxTexts:
		return fmt.Sprintf("more than %d open files of /proc/PID/fdinfo%s", maxTexts, hidden)
	case n.files+n.hidden+sentIf(max(n.files, before.files) > many) > maxProcFiles:
		return fmt.Sprintf("more than %d open files of /proc%s", maxProcFiles, hidden)
	}
	return ""
}

// overTexts returns a description if the processes have too many files of /proc open, and "" otherwise; see texts.over. While
// the sandbox is ahead of its share of the server's time, overTexts does nothing, as overTables.
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
	n, had := count.value, s.hadTexts
	s.Watch.kept(n.kept, n.began)
	s.hadTexts.open, s.hadTexts.files = max(had.open, n.open), max(had.files, n.files)
	return n.over(had)
}

// countTexts counts the open files of /proc of processes. It stops soon after it has found more than a sandbox may have.
func countTexts(processes []string) (n texts) {
	n.began = time.Now()
	for _, p := range processes {
		named, sent := filesOfCalls("/proc/" + p)
		n.sent, n.kept = n.sent+sent, n.kept+named+sent
		dir := filesOf(p)
		names, err := readNames(dir)
		if errors.Is(err, fs.ErrPermission) {
			n.hidden += hiddenFiles(dir, err)
		}
		for _, name := range names {
			to, _ := os.Readlink(dir + "/" + name) // "" if it was closed meanwhile
			if strings.HasPrefix(to, "/proc/") {
				n.files++
			}
			if strings.Contains(to, "/fdinfo/") {
				n.open++
			}
		}
		if n.open+n.hidden > maxTexts || n.files > maxProcFiles {
			break
		}
	}
	most := hostFiles()
	n.sent, n.kept = min(n.sent, most), min(n.kept, most)
	return n
}
