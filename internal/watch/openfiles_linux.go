package watch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The kernel bounds the open files of the whole host (fs.file-max). A mapping keeps a file open whose descriptor was
// closed, and a process may have 65 530 mappings. A call that waits for files (poll, select) keeps them open, too, and
// each thread can be in one. So descriptors do not bound the open files of a sandbox. If half of
// the host's are in use, a sandbox that may hold more than a share of them is ended.
const (
	filesInUse   = 2  // 1/filesInUse of the host's
	filesShare   = 16 // of the host's; one sandbox may hold 1/filesShare
	fewOpenFiles = 1 << 16
	mostWaited   = 1024 // files of one call; the largest RLIMIT_NOFILE of a sandbox
)

// waitingCalls are the calls that wait for many files, by their numbers, and which argument says how many:
// poll, ppoll and restart_syscall, which continues a poll; select and pselect6.
var waitingCalls = map[string]map[string]int{
	"amd64": {"7": 1, "271": 1, "219": 1, "23": 0, "270": 0},
	"arm64": {"73": 1, "128": 1, "72": 0},
}[runtime.GOARCH]

// lookAtFiles ends the programs of sandboxes that may hold too many open files. text has the form of
// /proc/sys/fs/file-nr. It reports whether open files are to be counted again.
func (o *Objects) lookAtFiles(live []*Target, text string) (again bool) {
	used, most := filesIn(text)
	if most <= 0 || used < most/filesInUse {
		return false
	}
	share, took := max(most/filesShare, fewOpenFiles), time.Duration(0)
	for _, s := range live {
		n, done := ask(o, s, &s.files, "open files", func() int { return s.countFiles(share) })
		took += n.took
		if n.value > share {
			o.end(s, fmt.Sprintf("more than %d open files", share))
		}
		again = again || !done || n.value > share
	}
	if !again {
		o.nextFiles = time.Now().Add(epollRest * took)
	}
	return again
}

// filesIn returns how many files are open on the host, and how many may be.
func filesIn(text string) (used, most int) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return 0, 0
	}
	used, _ = strconv.Atoi(f[0])
	most, _ = strconv.Atoi(f[2]) // the largest number if there is no bound
	return used, most
}

// hostFiles returns the most files that the host may have open, and so those that the calls of programs may keep. Before
// Linux 6.14 the kernel's number leaves out what each processor has counted lately.
func hostFiles() int {
	text, _ := os.ReadFile("/proc/sys/fs/file-nr")
	used, _ := filesIn(string(text))
	if used == 0 {
		return math.MaxInt
	}
	return used + int(uncounted())
}

// filesSent returns the most files that the calls of processes may keep that wait to send some.
func filesSent(processes []string) (n int) {
	for _, p := range processes {
		_, sent := filesOfCalls("/proc/" + p)
		n += sent
	}
	return min(n, hostFiles())
}

// countFiles returns how many files the sandbox may hold open: its descriptors, its mappings of files and the
// files that its calls wait for. It stops above limit.
func (s *Target) countFiles(limit int) (sum int) {
	for _, p := range s.processes() {
		if sum += countFiles(filesOf(p)); sum > limit {
			return sum
		}
		if sum += mappedFiles("/proc/"+p, limit); sum > limit {
			return sum
		}
		if sum += waitedFiles("/proc/" + p); sum > limit {
			return sum
		}
	}
	return sum
}

// mappedFiles counts the mappings of files of a process, by its directory in /proc. If its first thread has ended, the
// kernel shows them at the others.
func mappedFiles(process string, limit int) (n int) {
	return mappings(process, limit, func(_, inode string) bool { return inode != "0" })
}

// mappings counts the mappings of a process that count accepts, up to one more than limit, as mappedFiles does. If the process
// hides its mappings, the most count that its address space has room for and the kernel lets a process have.
func mappings(process string, limit int, count func(device, inode string) bool) (n int) {
	tasks, _ := readNames(process + "/task")
	for _, t := range tasks {
		f, err := os.Open(process + "/task/" + t + "/maps")
		if errors.Is(err, fs.ErrPermission) {
			return int(min(tablesOf(filepath.Base(process)).pages, mostMappings(), int64(limit)+1))
		}
		if err != nil {
			continue
		}
		lines := 0
		for text := bufio.NewScanner(f); n <= limit && text.Scan(); lines++ {
			if m := bytes.Fields(text.Bytes()); len(m) > 4 && count(string(m[3]), string(m[4])) { // range, rights, offset, device, inode
				n++
			}
		}
		_ = f.Close()
		if lines > 0 {
			break
		}
	}
	return n
}

// sendingCalls are the calls that send files, by their numbers: sendmsg and sendmmsg. While they wait, they keep up to
// mostSent files.
var sendingCalls = map[string]map[string]bool{
	"amd64": {"46": true, "307": true},
	"arm64": {"211": true, "269": true},
}[runtime.GOARCH]

const mostSent = 253 // SCM_MAX_FD

// waitedFiles returns how many files the waiting calls of a process may keep open, by its directory in /proc. The kernel does
// not show the call of a thread that runs.
func waitedFiles(process string) int {
	named, sent := filesOfCalls(process)
	return named + sent
}

// filesOfCalls returns two numbers for a process, by its directory in /proc: n is how many files its waiting poll and select
// calls name, and sent is how many files its waiting sendmsg calls may keep.
func filesOfCalls(process string) (n, sent int) {
	tasks, _ := readNames(process + "/task")
	for _, t := range tasks {
		text, _ := os.ReadFile(process + "/task/" + t + "/syscall") // number, arguments
		f := strings.Fields(string(text))
		if len(f) < 3 {
			continue
		}
		if count, ok := waitingCalls[f[0]]; ok {
			files, _ := strconv.ParseUint(f[1+count], 0, 64)
			n += int(min(files, mostWaited))
		}
		if sendingCalls[f[0]] {
			sent += mostSent
		}
	}
	return n, sent
}
