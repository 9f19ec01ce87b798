package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// wallRlimits and wallFiles are walls of a command besides those of package jail.
const (
	wallRlimits    = "rlimits"
	wallFiles      = "closed descriptors"
	wallApart      = "apart from the server"
	wallExec       = "executes no further program"
	wallTasks      = "starts no process"
	wallSockets    = "makes no socket"
	wallShared     = "makes no shared memory"
	wallAttributes = "changes no file attribute"
)

// run starts a job on a thread of its own, which is confined first and ends with the command,
// and waits for the command's end. The thread enters the job's directory as a part of a look, because a file system may never answer that, either.
func run(ctx context.Context, j job, s *streams, stop *stopper) (e ended, err error) {
	next, done := make(chan func(dir string)), make(chan struct{})
	defer close(next) // also for a thread that enters the directory after the look has failed
	o, err := looked(ctx, max(j.timeout, time.Second), func(context.Context) (opened, error) { return entered(j, next) })
	if err != nil {
		return e, err
	}
	defer o.close()
	next <- func(dir string) {
		defer close(done)
		j.dir = dir
		err = caught(func() (err error) {
			e, err = runConfined(j, o, s, stop)
			return err
		})
	}
	<-done
	return e, err
}

// entered opens the files of a job, and enters its directory with a thread of its own. That thread then calls the next function, with the directory for the fork, and ends.
// If next is closed, it calls none.
func entered(j job, next <-chan func(dir string)) (o opened, err error) {
	if o, err = openFor(j); err != nil {
		return o, err
	}
	done := make(chan error, 1)
	go ownThread(func() {
		dir, failed := o.enter()
		done <- failed
		if f := <-next; f != nil {
			f(dir)
		}
	})
	if err = <-done; err != nil {
		o.close()
	}
	return o, err
}

// opened has the files that are opened before a job has its thread, because others may have made them and the lookup of their paths may never end. Any user of the
// machine can block the lookup of names in a directory: by listing the directory into memory of a file system that does not answer.
type opened struct {
	rules *os.File // of Landlock; nil: the kernel has none
	dir   *os.File // the job's directory
}

func openFor(j job) (o opened, err error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, j.dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) {
		fd, err = unix.Open(j.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return o, &os.PathError{Op: "open", Path: j.dir, Err: err}
	}
	o.dir = os.NewFile(uintptr(fd), j.dir)
	if o.rules, err = jail.ThreadRules(landlockRules(j)); err != nil {
		o.close()
	}
	return o, err
}

func (o opened) close() { _ = errors.Join(o.rules.Close(), o.dir.Close()) } // Close of a nil file only returns an error

// enter makes the job's directory the working directory of the calling thread and of the processes that it starts. If that is forbidden, as in some containers,
// enter returns a path by which the child of a fork enters the directory. Meanwhile Go's scheduler waits for the child, and with it the whole server. So it is a path
// in /proc, which others cannot change.
func (o opened) enter() (path string, err error) {
	if unix.Unshare(unix.CLONE_FS) != nil {
		path = "/proc/self/fd/" + strconv.Itoa(int(o.dir.Fd()))
		return path, unix.Access(path, unix.X_OK) // a file system that does not answer makes this thread wait, and not the child
	}
	return "", unix.Fchdir(int(o.dir.Fd()))
}

// ownThread calls f on a thread that ends afterwards. It is never the main thread, whose
// restrictions would be those that the kernel shows for the whole process.
func ownThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			ownThread(f) // on another thread, because this goroutine holds the main one
			runtime.UnlockOSThread()
			return
		}
		f() // the goroutine ends with its thread locked, which ends the thread
	}()
	<-done
}

// untraced calls f, see caught, on a thread that cannot follow links such as /proc/PID/root of other users' processes. A user can make a link to one of these, also
// in place of a directory while f looks there. It leads into the mounts of that process, where a file system of the user may never answer: the thread would
// wait for ever.
func untraced(f func() error) (err error) {
	ownThread(func() {
		if err = jail.DropTracing(); err == nil {
			err = caught(f)
		}
	})
	return err
}

func runConfined(j job, o opened, s *streams, stop *stopper) (ended, error) {
	var e ended
	walls, err := jail.ConfineThread(o.rules)
	if err != nil {
		return e, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return e, err
	}
	defer func() { _ = null.Close() }()
	closed := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil // also descriptors that the server was started with
	pid, held, err := start(j, []uintptr{null.Fd(), s.writers[0].Fd(), s.writers[1].Fd()})
	if err != nil {
		return e, err
	}
	s.started()
	kill := func() { _ = unix.Kill(-pid, unix.SIGKILL) }
	if err = wall(pid, j, child{walls, held, closed}, &e); err != nil {
		kill()
		_, failed := waitFor(pid)
		return ended{}, errors.Join(err, failed)
	}
	if held {
		if err := unix.PtraceDetach(pid); err != nil {
			kill()
		}
	}
	stop.begin(kill)
	waitDead(pid)
	e.why = stop.end()
	kill()                // ends the other processes of the group; its id cannot be reused before the wait
	ws, _ := waitFor(pid) // it is dead, and no other thread waits for it
	e.exit = ws.ExitStatus()
	if ws.Signaled() {
		e.signal = int(ws.Signal())
		e.exit = 128 + e.signal
	}
	return e, nil
}

// watched fails if a pipe has no deadlines.
func watched(r *os.File) error { return r.SetReadDeadline(time.Time{}) }

// drain copies up to 64 KiB, the capacity of a pipe, without waiting. On a busy machine, the deadline of a stream may pass before its goroutine
// has read anything.
func drain(r *os.File, to io.Writer) {
	raw, err := r.SyscallConn()
	if err != nil || r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		b := make([]byte, 64<<10)
		if n, failed := unix.Read(int(fd), b); failed == nil && n > 0 {
			_, _ = to.Write(b[:n])
		}
		return true // also if the pipe is empty
	})
}

// child says how a program was started.
type child struct {
	walls  []string // those of the thread that has started it
	held   bool     // it is held at its first instruction
	closed bool     // it has no descriptors of the server
}

// wall puts a program that was started behind its walls, and sets in e which ones it has. If it fails, the program must not go on. A wall that
// neither the kernel nor this program has is missing; a program for which another one cannot be made is not executed.
func wall(pid int, j job, c child, e *ended) (err error) {
	switch {
	case j.rewritten():
		return errReplaced
	case c.held && len(c.walls) > 1 && jail.Foreign(pid): // without Landlock it may do what it likes anyway
		return errForeign
	}
	yield(pid)
	e.walls, e.weak, err = observed(pid, j, c)
	return err
}

// rewritten reports whether the program file was changed after its check. The kernel refuses writes to a binary while a process executes
// it. So if the file is unchanged now, the process executes the file that was checked.
func (j *job) rewritten() bool {
	if j.pinned == nil {
		return false
	}
	now, err := j.file.Stat()
	return err != nil || !same(j.pinned, now)
}

// waitFor waits for the end of a process.
func waitFor(pid int) (ws unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			return ws, err
		}
	}
}

// start starts the program. If the kernel permits it, the program is held at its first
// instruction, until the caller has set its limits.
func start(j job, files []uintptr) (pid int, held bool, err error) {
	execute := func(attr *syscall.ProcAttr) (int, error) {
		if elfFile(j.file) { // so that what is executed is the file that was checked
			return jail.ForkExec(int(j.file.Fd()), j.words, attr)
		}
		if j.after != nil { // as env would execute it, but then it could not be told to execute nothing more
			f, failed := plainfile.Open(j.after[0])
			if failed != nil {
				return 0, failed
			}
			defer func() { _ = f.Close() }()
			return jail.ForkExec(int(f.Fd()), slices.Concat([]string{filepath.Base(j.after[0])}, j.after[1:], []string{j.path}, j.words[1:]), attr)
		}
		return syscall.ForkExec(j.path, j.words, attr)
	}
	attr := &syscall.ProcAttr{Dir: j.dir, Env: j.env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: true}}
	jail.UsualSlack()
	return startHeld(execute, attr)
}

// startHeld starts a program by execute. If the kernel permits no tracing, the program is not held.
func startHeld(execute func(*syscall.ProcAttr) (int, error), attr *syscall.ProcAttr) (pid int, held bool, err error) {
	pid, err = execute(attr)
	if errors.Is(err, syscall.EPERM) && tracingForbidden() {
		attr.Sys.Ptrace = false
		pid, err = execute(attr)
		return pid, false, err
	}
	if err != nil {
		return 0, false, err
	}
	var ws unix.WaitStatus
	for {
		_, err = unix.Wait4(pid, &ws, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || !ws.Stopped() {
		return 0, false, fmt.Errorf("the program ended before it began: %w", errors.Join(err, errors.New(strconv.Itoa(int(ws)))))
	}
	return pid, true, nil
}

// tracingForbidden reports whether the kernel permits no tracing of a child. A user's file system can refuse the execution of its files with the same
// error, also only the first time. So the child executes no file.
func tracingForbidden() bool {
	_, err := syscall.ForkExec("", []string{""}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
	return errors.Is(err, syscall.EPERM) // else there is no file ""
}

// observed puts a program behind its walls, and returns those that it has. It fails if the program is to blame for a missing one, or what
// is used up at the moment.
func observed(pid int, j job, child child) (stood, weak []string, err error) {
	stood, weak = []string{}, []string{} // not nil, also for callers that read JSON
	walls, held := child.walls, child.held
	calls, apart, signals := jail.Calls{NoExec: j.execs != nil && j.last}, false, true
	if k := j.known; k != nil {
		calls.NoProcesses, calls.NoSockets, calls.NoShared, calls.NoAttributes = calls.NoExec, !k.sockets, true, true
	}
	if held && len(walls) > 1 { // without Landlock there is nothing to be apart from
		signals, err = jail.Apart(pid)
		apart = err == nil
	}
	filtered := false
	if held && (err == nil || jail.Lacking(err)) {
		err = jail.LimitCalls(pid, calls)
		filtered = err == nil
	}
	if err != nil && len(walls) > 1 && !jail.Lacking(err) {
		return nil, nil, fmt.Errorf("%w: %w", errUnwalled, err)
	}
	limits := limit(pid, j)
	var status []byte
	unconfined(func() { status, err = os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") })
	if usedUp(err) {
		return nil, nil, fmt.Errorf("%w: %w", errUnwalled, err)
	}
	if limits = limits && held; limits {
		if limits, err = withinData(pid, status); err != nil {
			return nil, nil, err
		}
	}
	if bytes.Contains(status, []byte("NoNewPrivs:\t1")) {
		stood = append(stood, walls...) // Landlock is inherited with it
	}
	if filtered = filtered && bytes.Contains(status, []byte("\nSeccomp:\t2\n")); filtered {
		stood = append(stood, jail.WallSeccomp)
	}
	for _, c := range []struct {
		has        bool
		wall, weak string
	}{
		{calls.NoExec, wallExec, "programs: it can execute its own file, its interpreters and their loaders, and by a loader any file"},
		{calls.NoProcesses, wallTasks, "processes: those that leave the command's group outlive it"},
		{calls.NoSockets, wallSockets, "network and unix sockets: those of the host"},
		{calls.NoShared, wallShared, "memory: what processes share is not limited"},
		{calls.NoAttributes, wallAttributes, "files: modes, owners and times of files can be changed, because Landlock does not hold them"},
	} {
		switch {
		case c.has && filtered:
			stood = append(stood, c.wall)
		case c.wall != wallExec || j.execs != nil: // else it may execute any program
			weak = append(weak, c.weak)
		}
	}
	switch {
	case !filtered || !apart:
		weak = append(weak, "server: it can read this server's memory, end this server, change its limits and enter its sandboxes")
	case signals:
		weak = append(weak, "server: it can end this server, because this kernel does not keep signals from others")
	default:
		stood = append(stood, wallApart)
	}
	if limits {
		stood = append(stood, wallRlimits)
	} else {
		weak = append(weak, "limits: set only after the program has started, or not at all")
	}
	if child.closed {
		stood = append(stood, wallFiles)
	}
	if jail.UserTasks() == 0 { // a program that starts no process starts threads
		weak = append(weak, "tasks: their number is not limited")
	}
	if len(walls) < 2 {
		weak = append(weak, "files: the kernel has no Landlock, so the program can read, write and execute whatever the server's user can")
	}
	return stood, weak, nil
}

// Limits of a process, in bytes.
const (
	maxData    = 1 << 30 // of data
	maxAnyData = 8 << 30 // of a program that executes others, such as a compiler

	// maxFiles is how many files a process may have open. npm list opens the package.json of all packages at once, and shows a package as invalid if it
	// cannot open the file. Node raises its soft limit to the hard one, so the hard one is higher for npm.
	maxFiles      = 1024
	maxKnownFiles = 16 << 10 // the hard limit for default rules whose program starts no other

	// maxCore is the limit of core dumps. With a limit of 0, the kernel starts the host's program for core dumps at each crash; with 1 it does not.
	maxCore = 1

	// maxStack is the hard limit of the stack of a program's first thread, which RLIMIT_DATA does not count. Compilers raise their soft limit to it. The
	// soft limit stays as it is, because the C library maps that much, which RLIMIT_DATA counts, for each further thread.
	maxStack = 64 << 20
)

// yield makes the kernel end a process before others when memory is short. If it fails, only its
// limits hold.
func yield(pid int) {
	unconfined(func() {
		f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("1000")
			_ = errors.Join(err, f.Close())
		}
	})
}

// unconfined calls f on a thread that is not confined, which may read and write files.
func unconfined(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// limit sets the resource limits of a process, and reports whether they are in force.
func limit(pid int, j job) bool {
	seconds, data := uint64(j.timeout/time.Second)+2, uint64(maxData)
	if j.execs == nil {
		data = maxAnyData
	}
	files := uint64(maxFiles)
	if j.known != nil && j.last {
		files = maxKnownFiles
	}
	limits := map[int]uint64{
		unix.RLIMIT_CORE: maxCore, unix.RLIMIT_CPU: seconds * uint64(runtime.NumCPU()), unix.RLIMIT_FSIZE: 1 << 30, unix.RLIMIT_NOFILE: files, unix.RLIMIT_DATA: data, unix.RLIMIT_MEMLOCK: 64 << 10, unix.RLIMIT_STACK: maxStack,
	}
	if tasks := jail.TasksOfOthers(); tasks > 0 {
		limits[unix.RLIMIT_NPROC] = tasks // the rest of its user's limit is kept for the threads of this server
	}
	for what, most := range limits {
		var old, now unix.Rlimit
		if unix.Prlimit(pid, what, nil, &old) != nil {
			return false
		}
		most = min(most, old.Max)
		soft := most
		switch what {
		case unix.RLIMIT_STACK:
			soft = min(most, old.Cur)
		case unix.RLIMIT_NOFILE:
			soft = min(most, maxFiles)
		}
		if unix.Prlimit(pid, what, &unix.Rlimit{Cur: soft, Max: most}, nil) != nil || unix.Prlimit(pid, what, nil, &now) != nil || now.Max != most {
			return false
		}
	}
	return true
}

// withinData reports whether a held process is within its limit of data; known is false if that cannot be found out. It fails with errLarge if it is not: the kernel made what the
// program file asks for before the limit was set, and the process could use all of that.
func withinData(pid int, status []byte) (known bool, err error) {
	_, rest, _ := bytes.Cut(status, []byte("\nVmData:"))
	line, _, _ := bytes.Cut(rest, []byte("kB\n"))
	data, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 54)
	var now unix.Rlimit
	if err != nil || unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &now) != nil {
		return false, nil //nolint:nilerr // the limit is then no wall
	}
	if data<<10 > now.Cur {
		return false, errLarge
	}
	return true, nil
}

// waitDead waits until a process has ended, and leaves its process id taken.
func waitDead(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// landlockRules returns what a job may use.
func landlockRules(j job) []jail.ThreadRule {
	var rules []jail.ThreadRule
	look := newBudget(anyTime, maxWalls)
	if j.execs == nil {
		rules = append(rules, jail.ThreadRule{Path: "/", Exec: true})
	}
	for _, place := range j.lists {
		rules = append(rules, jail.ThreadRule{Path: place, List: true})
	}
	places := j.only
	if places == nil {
		places = []string{"/"}
	}
	for _, place := range places {
		if look.spend(len(j.reads)/4) != nil { // strangers may have made many places, and many closed ones
			break
		}
		if slices.ContainsFunc(j.reads, func(c string) bool { return under(place, c) }) {
			continue
		}
		rules = append(rules, jail.ThreadRule{Path: place, List: true})
		for _, p := range besides(look, place, j.reads) {
			if !under(p, "/dev") {
				rules = append(rules, jail.ThreadRule{Path: p, Read: true})
			}
		}
	}
	for _, dev := range []string{"null", "zero", "full", "random", "urandom"} {
		rules = append(rules, jail.ThreadRule{Path: "/dev/" + dev, Read: true, Write: dev == "null"})
	}
	for _, p := range j.execs {
		rules = append(rules, jail.ThreadRule{Path: p, Read: true, Exec: true})
	}
	for _, p := range writable(look, j) {
		rules = append(rules, jail.ThreadRule{Path: p, Read: true, Write: true})
	}
	return rules
}

// writable returns the places that a job may write, without those that it may not read or write: what Landlock allows for a
// directory, it allows for everything below. If there is one of these in a directory, nothing can be made or removed in the
// directory itself, and in those between the two.
func writable(look *budget, j job) []string {
	closed := slices.Concat(j.reads, j.unwritten)
	var all []string
	for _, p := range j.writes {
		if !slices.ContainsFunc(closed, func(c string) bool { return under(p, c) }) {
			all = append(all, besides(look, p, closed)...)
		}
	}
	return all
}
