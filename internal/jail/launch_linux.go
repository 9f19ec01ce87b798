package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// launch describes a process in a new user namespace, and perhaps other new namespaces. It runs the
// program of init/init.c. A launcher makes it (init/launch.c), because a fork of the server into a user
// namespace would copy the server's memory.
type launch struct {
	namespaces uintptr
	uid, gid   idMap
	size       int  // of both maps
	ids        bool // the process takes the first ids of the maps; otherwise it keeps those that it has
	groups     bool // it has no groups, and may choose others
	cgroup     int  // it starts in this group of version 2; 0: in the server's
}

// idMap has the first id of a map, inside and outside of the namespace.
type idMap struct{ inside, outside int }

// The modes of a launch, as init/init.c numbers them.
const (
	launchGroups = 1
	launchIDs    = 64
)

// Launcher is a process that waits to start the builder of a jail. It can be started before anything of the jail
// is known.
type Launcher struct {
	control, pid int
	taken        atomic.Bool
}

// StartLauncher starts a launcher. The caller gives it to StartBuilder or closes it. On error StartLauncher returns
// nil, and StartBuilder tries again.
func StartLauncher() *Launcher {
	control, pid, err := launch{}.connected(nil)
	if err != nil {
		return nil
	}
	return &Launcher{control: control, pid: pid}
}

// take returns the launcher's control socket and its process id. ok is false if the launcher is nil or take was called
// before.
func (l *Launcher) take() (control, pid int, ok bool) {
	if l == nil || l.taken.Swap(true) {
		return -1, 0, false
	}
	return l.control, l.pid, true
}

// Close ends a launcher that was not used.
func (l *Launcher) Close() {
	if control, pid, ok := l.take(); ok {
		closeAll(control) // it ends at end of file
		await(pid)
	}
}

// connected starts the program and returns the server's end of its control socket.
func (l launch) connected(pidfd *int) (control, pid int, err error) {
	ours, theirs, err := pair()
	if err != nil {
		return -1, 0, err
	}
	defer closeAll(theirs)
	if pid, err = l.program(theirs, pidfd); err != nil {
		closeAll(ours)
		return -1, 0, err
	}
	return ours, pid, nil
}

// start starts the process. Its control socket is theirs, which start closes, and ours is the server's end.
func (l launch) start(ours, theirs int) (pid, pidfd int, err error) {
	launcher, err := l.program(theirs, nil)
	closeAll(theirs) // so that the server notices if the launcher ends
	if err != nil {
		return 0, -1, err
	}
	pid, pidfd, err = l.launch(launcher, ours)
	if err == nil {
		await(launcher)
	}
	return pid, pidfd, err
}

// launch has a launcher start the process. The caller awaits the launcher, which ends at once, unless launch fails.
func (l launch) launch(launcher, ours int) (pid, pidfd int, err error) {
	return answered(launcher, ours, send(ours, l.packet()))
}

// answered receives the answer of a launcher that was asked with the error asked.
func answered(launcher, ours int, asked error) (pid, pidfd int, err error) {
	if err = asked; err == nil {
		pid, pidfd, err = launched(ours)
	}
	if err == nil {
		return pid, pidfd, nil
	}
	// The launcher may hang. A process that it has made is in its process group until the server is told of it.
	_ = unix.Kill(-launcher, unix.SIGKILL)
	if pid == 0 {
		pid, pidfd, _ = launched(ours) // what it has told too late
		closeAll(pidfd)
	}
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		await(pid)
	}
	await(-launcher)
	return 0, -1, fmt.Errorf("launcher: %w", err)
}

// launched receives the launcher's answer. On error, pid is that of a process that was made, if any.
func launched(control int) (pid, pidfd int, err error) {
	answer, fds, err := receive(control, make([]byte, 16))
	if err == nil && len(answer) != 12 {
		err = errors.New("it gives no answer")
	}
	if err == nil {
		pid = int(word(answer, 2))
		if word(answer, 0) == 'S' && len(fds) == 1 {
			return pid, fds[0], nil
		}
		if err = syscall.Errno(word(answer, 1)); word(answer, 0) == 'S' {
			err = unix.EMFILE // the kernel has dropped the descriptor
		}
	}
	closeAll(fds...)
	return pid, -1, err
}

// program starts the program in the server's namespaces. Unless pidfd is nil, it gets the process.
func (l launch) program(control int, pidfd *int) (pid int, err error) {
	exe, err := sealedInit()
	if err != nil {
		return 0, err
	}
	defer closeAll(exe)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/null: %w", err)
	}
	defer closeAll(null)
	attr := &syscall.SysProcAttr{Setsid: true, PidFD: pidfd}
	if l.cgroup > 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, l.cgroup
	}
	null3 := uintptr(null)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	UsualSlack()
	return ForkExec(exe, []string{"sandboxmcp-init"}, &syscall.ProcAttr{
		Env: []string{}, Dir: "/", Files: []uintptr{null3, null3, null3, uintptr(control)}, Sys: attr,
	})
}

// UsualSlack takes from the calling thread, which must be locked, a timer slack above the kernel's usual one. Some threads of a
// server have more, so that the runtime's monitor rests. What they start must not inherit it.
func UsualSlack() {
	const usual = 50_000 // ns
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && now > usual {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usual, 0, 0, 0)
	}
}

// packet returns struct launch of init/launch.c.
func (l launch) packet() []byte {
	le, p := binary.LittleEndian, make([]byte, 0, 64)
	mode := uint32(0)
	if l.groups {
		mode |= launchGroups
	}
	if l.ids {
		mode |= launchIDs
	}
	p = le.AppendUint32(le.AppendUint32(p, 'U'), mode)
	p = le.AppendUint64(p, uint64(l.namespaces))
	for _, n := range []int{l.uid.inside, l.uid.outside, l.gid.inside, l.gid.outside, l.size, 0} {
		p = le.AppendUint32(p, uint32(n))
	}
	p = le.AppendUint64(p, below(UserTasks(), ownTasks))
	return le.AppendUint64(p, below(finite(unix.RLIMIT_SIGPENDING), ownSignals))
}

// await waits for the end of a child. With a negative number it waits for all children in that process group.
func await(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) && (err != nil || pid > 0) {
			return
		}
	}
}
