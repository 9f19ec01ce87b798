package tuning

import (
	"os"
	"strconv"
)

// slack is how much longer than asked the monitor thread may sleep, in nanoseconds.
const slack = "1000000"

// rest lets the runtime's monitor thread sleep longer. While any goroutine runs, that thread sleeps 20 µs at a time, which the
// kernel makes 70 µs. On a virtual machine each sleep costs some 20 µs of processor time: a sixth of what a short cell of a
// session costs. Whenever it wakes, it also takes processors of the runtime from threads in short system calls, which then wait for
// one. With the slack, a goroutine may wait 1 ms longer for a processor whose thread is in a long system call.
//
// Only root (CAP_SYS_NICE) may set the slack of another thread. Otherwise rest changes nothing.
func rest() {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(monitor())+"/timerslack_ns", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteString(slack)
	_ = f.Close()
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
