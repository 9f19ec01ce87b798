package jail

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A killed program ends when its system call returns. Some calls copy gigabytes to the program's memory and
// do not check for signals, such as a read of /proc/self/pagemap. They return at once when that memory is
// gone. So the memory of a sandbox that does not end soon is taken from its processes.

const (
	// endsSoon is how long a killed sandbox has before its memory is released. One that has much memory
	// may take longer, and then ends sooner by it.
	endsSoon = 200 * time.Millisecond
	// endsLate is how long it has before files that it has mapped are made empty, too.
	endsLate = 2 * time.Second
	// mostReleased bounds the processes of which memory is released at a time.
	mostReleased = 1 << 14
)

// untilReleased waits until init has ended, at most for limit. It releases the memory of the sandbox's
// processes from time to time.
func (s *Slot) untilReleased(limit time.Duration) error {
	began := time.Now()
	end := began.Add(limit)
	wait := endsSoon
	for {
		err := waitPidfd(s.pidfd, min(wait, time.Until(end)))
		if err == nil || time.Until(end) <= 0 {
			return err
		}
		done := make(chan struct{})
		go func() { // the kernel lets it wait for each process whose memory is being changed
			defer close(done)
			s.release(s.PID(), time.Since(began) > endsLate)
		}()
		wait *= 2
		rest := time.NewTimer(time.Until(end))
		select {
		case <-done:
		case <-rest.C:
		}
		rest.Stop()
	}
}

// releaseUntil releases the memory of killed processes below pid from time to time, until done is closed.
func (s *Slot) releaseUntil(done <-chan struct{}, pid int) {
	for wait := endsSoon; ; wait *= 2 {
		t := time.NewTimer(wait)
		select {
		case <-done:
			t.Stop()
			return
		case <-t.C:
			s.release(pid, false)
		}
	}
}

// release takes the memory from those processes of a sandbox that were killed. pid is that of its init. It takes
// private memory by a call for that, and memory that processes share by making its files empty. The latter needs
// root. With named, it does so also with files that have a name, which the caller of the run may want.
func (s *Slot) release(pid int, named bool) {
	if pid <= 0 || s.jail.cfg.Mode == ModePlain {
		return
	}
	seen := map[inode]bool{}
	for _, p := range processesBelow(pid) {
		if killed := releasePrivate(p); killed && os.Geteuid() == 0 && s.own != 0 { // then no file of the host has the sandbox's user
			cutShared(p, uint32(s.uid), named, seen)
		}
	}
}

// releasePrivate takes its private memory from a process that was killed. The kernel refuses it for others.
func releasePrivate(pid string) (killed bool) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return false
	}
	defer closeAll(fd)
	_, _, errno := unix.Syscall(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0, 0)
	return errno == 0
}

// processesBelow lists the processes below one of the host.
func processesBelow(pid int) []string {
	found := []string{strconv.Itoa(pid)}
	for i := 0; i < len(found) && len(found) < mostReleased; i++ {
		found = append(found, Children(found[i])...)
	}
	return found[1:]
}

// Children lists the children of a process of the host. While the kernel reaps one of them, it may
// leave out others.
func Children(pid string) (found []string) {
	tasks, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil {
		return nil
	}
	for _, t := range tasks {
		b, err := os.ReadFile("/proc/" + pid + "/task/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for c := range bytes.FieldsSeq(b) {
			found = append(found, string(c))
		}
	}
	return found
}

type inode struct{ dev, ino uint64 }

// cutShared removes the contents of the files in memory that a process shares and that belong to uid: of those
// without a name, and with named of all.
func cutShared(pid string, uid uint32, named bool, seen map[inode]bool) {
	dir, maps := mapped(pid)
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line) // range, rights, offset, device, inode, path
		if len(fields) < 5 || !strings.Contains(fields[1], "w") || !strings.HasSuffix(fields[1], "s") {
			continue
		}
		var of unix.Stat_t
		name := dir + "map_files/" + fields[0]
		if unix.Stat(name, &of) != nil || of.Uid != uid || of.Mode&unix.S_IFMT != unix.S_IFREG || seen[inode{of.Dev, of.Ino}] {
			continue
		}
		seen[inode{of.Dev, of.Ino}] = true
		if of.Nlink == 0 || named {
			cut(name, uid)
		}
	}
}

// mapped returns the mappings of a process, and the directory of one of its threads that still has them.
// Threads that have ended show none, also the first.
func mapped(pid string) (dir, maps string) {
	threads, _ := os.ReadDir("/proc/" + pid + "/task")
	for _, t := range threads {
		dir = "/proc/" + t.Name() + "/"
		if b, err := os.ReadFile(dir + "maps"); err == nil && len(b) > 0 {
			return dir, string(b)
		}
	}
	return "", ""
}

// cut makes a file in memory empty if it belongs to uid.
func cut(name string, uid uint32) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer closeAll(fd)
	var of unix.Stat_t
	var system unix.Statfs_t
	if unix.Fstat(fd, &of) == nil && of.Uid == uid && unix.Fstatfs(fd, &system) == nil && system.Type == unix.TMPFS_MAGIC {
		_ = unix.Ftruncate(fd, 0)
	}
}
