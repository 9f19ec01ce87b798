package jail

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// TestAFailedWaitRests: a wait for the end of a sandbox that fails at once is repeated, but not in a
// loop that uses a processor.
func TestAFailedWaitRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		untilEnded(func() error {
			if calls++; calls <= 3 {
				return unix.ENOMEM
			}
			return nil
		})
		if rested := time.Since(began); calls != 4 || rested != 3*outliveRest {
			t.Errorf("got %d calls and a rest of %v, want 4 and %v", calls, rested, 3*outliveRest)
		}
	})
}

// TestListsOfLaterModulesAreCovered: a module that is loaded while the server runs adds a directory to
// /proc. The next sandbox covers it, with a script of its own.
func TestListsOfLaterModulesAreCovered(t *testing.T) {
	proc := t.TempDir()
	covers := func(path string) bool {
		s, _ := wallScript(plan{lists: haveLists(proc)})
		return slices.Contains(s.names, "mount "+path)
	}
	before := haveLists(proc)
	if covers("/proc/spl") {
		t.Error("before: got a mount over /proc/spl, want none")
	}
	if err := os.Mkdir(filepath.Join(proc, "spl"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !covers("/proc/spl") {
		t.Error("afterwards: got no mount over /proc/spl, want one")
	}
	if one, two := (plan0{lists: before}), (plan0{lists: haveLists(proc)}); one == two {
		t.Error("got one cached script for both, want two")
	}
}

// TestHostListsAreCovered: a sandbox has a mount over each directory of the host's lists.
func TestHostListsAreCovered(t *testing.T) {
	_, s := testSlot(t)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.PID()))
	if err != nil {
		t.Skipf("the mounts of a sandbox cannot be read: %v", err)
	}
	for i, there := range haveLists("/proc") {
		if place := "/proc/" + bounds.HostLists[i]; there != strings.Contains(string(text), " "+place+" ") {
			t.Errorf("%s: got the host to have it: %v, want a mount over it then and else none", place, there)
		}
	}
}

// TestAloneBesideAProgramThatDoesNotStart: the end of a program that could not be executed does not hide one that
// was requested meanwhile.
func TestAloneBesideAProgramThatDoesNotStart(t *testing.T) {
	failed, next := &Proc{pid: 2, done: make(chan struct{})}, &Proc{}
	end := make([]byte, 40) // init is the only process
	binary.LittleEndian.PutUint32(end[4:], failed.pid)
	binary.LittleEndian.PutUint32(end[32:], 1)
	for name, c := range map[string]struct {
		starting map[uint32]*Proc
		want     bool
	}{
		"None":    {map[uint32]*Proc{}, true},
		"Another": {map[uint32]*Proc{7: next}, false},
	} {
		failed.done = make(chan struct{})
		s := &Slot{starting: c.starting, running: map[uint32]*Proc{failed.pid: failed}}
		if s.ended(end); s.alone != c.want {
			t.Errorf("%s is starting: got alone %v, want %v", name, s.alone, c.want)
		}
	}
}
