package jail

import (
	"errors"
	"slices"
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
		l := &look{status: map[string]string{}, limits: "Max processes 1 1\nMax open files 5 5\nMax x 1 1\n", cgroup: "1:a:/b", ids: "0 1 1", root: [2]uint64{1, 2}}
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
		"ids":       func(l *look) { l.ids = "0 2 1" },
		"root":      func(l *look) { l.root[1] = 3 },
		"limits":    func(l *look) { l.limits = "Max processes 2 2\nMax open files 5 5\nMax x 1 1\n" },
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
	files.limits = "Max processes 1 1\nMax open files 4 4\nMax x 1 1\n"
	if err := files.sameAs(seen()); err != nil {
		t.Errorf("fewer open files: got %v, want no error", err)
	}
}
