package tuning

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTheMonitorIsFound: of all threads, only the monitor sleeps by nanosleep again and again.
func TestTheMonitorIsFound(t *testing.T) {
	thread := monitor()
	if thread == 0 {
		t.Skip("thread ids have begun anew")
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(thread) + "/syscall")
		if err != nil {
			t.Skipf("system calls cannot be seen: %v", err)
		}
		if call, _, _ := strings.Cut(string(text), " "); call == strconv.Itoa(unix.SYS_NANOSLEEP) {
			return
		}
	}
	t.Errorf("thread %d does not sleep", thread)
}

// TestOnlyTheMonitorRests: no other thread gets the slack.
func TestOnlyTheMonitorRests(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may set the slack of another thread")
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	of := func(thread string) string {
		t.Helper()
		text, err := os.ReadFile("/proc/" + thread + "/timerslack_ns")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := map[string]string{}
	for _, th := range threads {
		before[th.Name()] = of(th.Name())
	}
	if err := rest(); err != nil {
		t.Fatal(err)
	}
	before[strconv.Itoa(monitor())] = strconv.Itoa(slack)
	for thread, want := range before {
		if got := of(thread); got != want {
			t.Errorf("thread %s: got the slack %s, want %s", thread, got, want)
		}
	}
}
