package jail

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
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
	// releasesAtOnce is how many processes may keep the server waiting while the memory of others is released. A process with the
	// most mappings that a sandbox may have keeps it waiting for seconds, and a sandbox may have fewer than 20 of them.
	releasesAtOnce = 64
	// mostReleases bounds these for all sandboxes together: each call that waits keeps a thread of the server.
	mostReleases = 256
)

// releasePlaces has a place for each release that may make the server wait besides one of each sandbox. Of the tasks that the server
// keeps to itself, they take at most an eighth: a Go program that gets no thread ends.
var releasePlaces = sync.OnceValue(func() chan struct{} { return make(chan struct{}, releasesOf(UserTasks())) })

// releasesOf returns the number of releasePlaces for a limit of the user's tasks, 0 if there is none.
func releasesOf(limit int) int {
	if limit == 0 {
		return mostReleases
	}
	return min(mostReleases, ownTasks(limit)/8)
}

// untilReleased waits until init has ended, at most for limit. Meanwhile it releases the memory of the sandbox's
// processes. When it returns nil, no release goes on, and none begins. So the user id may then be another
// sandbox's.
func (s *Slot) untilReleased(limit time.Duration) error {
	over := make(chan struct{})
	defer close(over)
	go s.releaseUntil(over, true)
	if err := waitPidfd(s.pidfd, limit); err != nil {
		return err
	}
	s.releasing.Lock()
	defer s.releasing.Unlock()
	s.released = true
	return nil
}

// releaseUntil releases the memory of killed processes from time to time, until over is closed. A release that
// has begun goes on: the kernel lets it wait for each process whose memory is being changed. With named, files
// that have a name are made empty, too, once the processes are late.
func (s *Slot) releaseUntil(over <-chan struct{}, named bool) {
	began := time.Now()
	for wait := endsSoon; ; wait *= 2 {
		t := time.NewTimer(wait)
		select {
		case <-over:
			t.Stop()
			return
		case <-t.C:
			s.release(named && time.Since(began) > endsLate)
		}
	}
}

// release takes the memory from those processes of a sandbox that were killed. It takes private memory by a call
// for that, and memory that processes share by making its files empty. The latter needs root. With named, it does
// so also with files that have a name, which the caller of the run may want.
func (s *Slot) release(named bool) {
	s.releasing.Lock()
	defer s.releasing.Unlock()
	if s.released || s.jail.cfg.Mode == ModePlain || s.Ended() || s.PID() <= 0 {
		return
	}
	may := os.Geteuid() == 0 && s.own != 0 // no file of the host belongs to the sandbox's user, except in a shared directory
	c := cutter{uid: uint32(s.uid), named: named, seen: map[inode]bool{}}
	if s.jail.cfg.ownShared() {
		c.not = s.jail.cfg.Shared
	}
	var cutting sync.Mutex
	atOnce(releasePlaces(), processesBelow(s.PID()), func(pid string) {
		releaseProcess(pid, func(pidfd int) {
			if may {
				cutting.Lock()
				defer cutting.Unlock()
				c.cutShared(pid, pidfd)
			}
		})
	})
}

// atOnce calls release for each of pids, releasesAtOnce at a time: a process whose memory is being changed does not delay others.
// Each call takes one of places. While there is none, atOnce waits for each call before the next one. It returns when all calls have
// returned.
func atOnce(places chan struct{}, pids []string, release func(pid string)) {
	own := make(chan struct{}, releasesAtOnce)
	var calls sync.WaitGroup
	for _, pid := range pids {
		own <- struct{}{}
		select {
		case places <- struct{}{}:
			calls.Go(func() {
				release(pid)
				<-places
				<-own
			})
		default:
			release(pid)
			<-own
		}
	}
	calls.Wait()
}

// releaseProcess takes its private memory from a process that was killed, and then calls killed. The kernel
// refuses it for others.
func releaseProcess(pid string, killed func(pidfd int)) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return
	}
	defer closeAll(fd)
	if _, _, errno := unix.Syscall(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0, 0); errno == 0 {
		killed(fd)
	}
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

// cutter makes files empty that processes of one sandbox share.
type cutter struct {
	uid   uint32         // owner of the files
	named bool           // also those that have a name
	not   Shared         // a directory of the host, whose files stay as they are
	seen  map[inode]bool // files that were found before
}

// cutShared makes the files in memory empty that a process shares and that belong to the sandbox's user.
func (c *cutter) cutShared(pid string, pidfd int) {
	dir, maps := mapped(pid)
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line) // range, rights, offset, device, inode, path
		if len(fields) < 5 || !strings.Contains(fields[1], "w") || !strings.HasSuffix(fields[1], "s") {
			continue
		}
		if at := strings.Index(line, "/"); at >= 0 && c.not.Host != "" && c.not.holds(line[at:]) { // a path as the process sees it
			continue
		}
		c.cut(dir+"map_files/"+fields[0], pidfd)
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

// cut makes a file in memory empty if it belongs to the user and if the process that shares it still exists. name
// leads to the file by the process id, which another process may have after that.
func (c *cutter) cut(name string, pidfd int) {
	var of unix.Stat_t
	if unix.Stat(name, &of) != nil || !c.wants(of) {
		return
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer closeAll(fd)
	var system unix.Statfs_t
	if unix.Fstat(fd, &of) != nil || !c.wants(of) || unix.Fstatfs(fd, &system) != nil || system.Type != unix.TMPFS_MAGIC || ended(pidfd) {
		return
	}
	c.seen[inode{of.Dev, of.Ino}] = true
	_ = unix.Ftruncate(fd, 0)
}

// wants reports whether a file is to be made empty.
func (c *cutter) wants(of unix.Stat_t) bool {
	return of.Uid == c.uid && of.Mode&unix.S_IFMT == unix.S_IFREG && (of.Nlink == 0 || c.named) && !c.seen[inode{of.Dev, of.Ino}]
}
