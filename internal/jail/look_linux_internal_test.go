package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLookIsReadAgain: what was seen of init is used until it is too old, the server has changed the
// sandbox, or init has ended.
func TestLookIsReadAgain(t *testing.T) {
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	s := made(t, j)
	defer func() { _ = s.Close() }()
	observe := func(hold time.Duration) []string {
		t.Helper()
		o, err := s.Observe(hold)
		if err != nil {
			t.Fatal(err)
		}
		return o.Walls
	}
	first := observe(time.Hour)
	if !slices.Contains(first, WallMountNS) {
		t.Fatalf("walls: got %q, want %q among them", first, WallMountNS)
	}
	j.foreign[s.seen.links[1]] = true // as if the mount namespace were the server's: the next look misses the wall
	for name, c := range map[string]struct {
		hold   time.Duration
		before func()
		again  bool
	}{
		"young":   {time.Hour, func() {}, false},
		"old":     {time.Minute, func() { s.seen.at = time.Now().Add(-2 * time.Minute) }, true},
		"none":    {0, func() {}, true},
		"changed": {time.Hour, s.stale, true},
	} {
		t.Run(name, func(t *testing.T) {
			s.seen = &look{at: time.Now(), walls: first}
			c.before()
			if got := !slices.Contains(observe(c.hold), WallMountNS); got != c.again {
				t.Errorf("read again: got %v, want %v", got, c.again)
			}
		})
	}
	s.seen = &look{at: time.Now(), walls: first}
	if err = errors.Join(unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0), waitPidfd(s.pidfd, 2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Observe(time.Hour); err == nil {
		t.Errorf("a sandbox that has ended: got walls %q, want an error", o.Walls)
	}
}

// TestForkHasWhatInitHas: a difference in each thing that is compared has a fork refused.
func TestForkHasWhatInitHas(t *testing.T) {
	seen := func() *look {
		l := &look{status: map[string]string{}, limits: &rlimits{unix.RLIMIT_NPROC: {Cur: 1, Max: 1}, unix.RLIMIT_NOFILE: {Cur: 5, Max: 5}}, cgroup: "1:a:/b", root: [2]uint64{1, 2}}
		l.links = processLinks
		for _, name := range sameStatus {
			l.status[name] = "0"
		}
		return l
	}
	if err := seen().sameAs(seen()); err != nil {
		t.Fatalf("the same: got %v, want no error", err)
	}
	changes := map[string]func(*look){
		"cgroup":    func(l *look) { l.cgroup = "1:a:/c" },
		"no cgroup": func(l *look) { l.cgroup = "" },
		"root":      func(l *look) { l.root[1] = 3 },
		"no limits": func(l *look) { l.limits = nil },
	}
	for i := range len(rlimits{}) {
		if i != unix.RLIMIT_NOFILE {
			changes[fmt.Sprintf("soft limit %d", i)] = func(l *look) { l.limits[i].Cur++ }
			changes[fmt.Sprintf("hard limit %d", i)] = func(l *look) { l.limits[i].Max++ }
		}
	}
	for i, name := range processLinks {
		changes["link "+name] = func(l *look) { l.links[i] = "another" }
	}
	for _, name := range sameStatus {
		changes["status "+name] = func(l *look) { l.status[name] = "1" }
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			l := seen()
			if change(l); l.sameAs(seen()) == nil {
				t.Error("got no error, want the fork refused")
			}
		})
	}
	files := seen()
	files.limits[unix.RLIMIT_NOFILE] = unix.Rlimit{Cur: 4, Max: 4}
	if err := files.sameAs(seen()); err != nil {
		t.Errorf("fewer open files: got %v, want no error", err)
	}
}

// TestLimitsByCallsAndByTextAreAlike: where the calls are refused, the text says the same.
func TestLimitsByCallsAndByTextAreAlike(t *testing.T) {
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	asked, err := limitsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	read, err := limitsIn(string(text))
	if err != nil || read != asked {
		t.Errorf("the text says %v, %v; the calls say %v", read, err, asked)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for name, wrong := range map[string]string{
		"nothing":       "",
		"a line less":   strings.Join(lines[:len(lines)-2], ""),
		"a line more":   string(text) + lines[1],
		"a short line":  strings.Join(append(slices.Clone(lines[:16]), "Max\n"), ""),
		"another value": strings.Replace(string(text), lines[1], fmt.Sprintf("%-26s%-21s%-21sseconds\n", "Max cpu time", "many", "unlimited"), 1),
	} {
		if l, err := limitsIn(wrong); err == nil {
			t.Errorf("%s: got %v, want an error", name, l)
		}
	}
}

// TestLimitsOfAnotherUser: a process of another user is not asked, but its text is read.
func TestLimitsOfAnotherUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may ask each process")
	}
	text, err := os.ReadFile("/proc/1/limits")
	if err != nil {
		t.Skipf("process 1 is not seen: %v", err)
	}
	want, err := limitsIn(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := limitsOf(1); err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
