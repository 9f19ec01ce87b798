package tuning

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// slack is how much longer than asked the monitor thread may sleep, in nanoseconds.
const (
	slack      = 1_000_000
	usualSlack = 50_000 // of the kernel
)

// rest lets the runtime's monitor thread sleep longer. While any goroutine runs, that thread sleeps 20 µs at a time, which the
// kernel makes 70 µs. On a virtual machine each sleep costs some 20 µs of processor time: a sixth of what a short cell of a
// session costs. Whenever it wakes, it also takes processors of the runtime from threads in short system calls, which then wait for
// one. With the slack, a goroutine may wait 1 ms longer for a processor whose thread is in a long system call.
//
// Only root (CAP_SYS_NICE) may set the slack of another thread. See Restart for others.
func rest() error {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(monitor())+"/timerslack_ns", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(slack))
	return errors.Join(err, f.Close())
}

// ownProgram is the program of this process. The kernel names a process that has executed it by the last part: again.
const (
	ownProgram = "/proc/self/exe"
	again      = "exe"
)

// restart is Restart.
func restart(argv, env []string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const name = "/proc/self/comm"
	if now, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(now)) == again {
		if f, err := os.OpenFile(name, os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(filepath.Base(argv[0]))
			_ = f.Close()
		}
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0)
		return
	}
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now != usualSlack || rest() == nil {
		return
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0) == nil {
		_ = unix.Exec(ownProgram, argv, env)
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0)
	}
}

// monitor returns the thread of the runtime's monitor: the first one that the process has made. It is 0 if thread ids have
// begun anew meanwhile.
func monitor() (thread int) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	main := os.Getpid()
	for _, t := range threads {
		switch id, err := strconv.Atoi(t.Name()); {
		case err != nil || id < main:
			return 0
		case id > main && (thread == 0 || id < thread):
			thread = id
		}
	}
	return thread
}
