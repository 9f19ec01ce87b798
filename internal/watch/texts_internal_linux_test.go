package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestManyOpenFilesOfProcAreTooMany: each open file keeps text, or memory of a process that has ended.
func TestManyOpenFilesOfProcAreTooMany(t *testing.T) {
	const fdinfo, all = "more than 64 open files of /proc/PID/fdinfo", "more than 1024 open files of /proc"
	for _, c := range []struct {
		now, before texts
		want        string
	}{
		{texts{open: 64, files: 1024}, texts{}, ""},
		{texts{open: 65, files: 65}, texts{}, fdinfo},
		{texts{files: 1025}, texts{}, all},
		{texts{files: 1, sent: 9999}, texts{files: 128}, ""}, // the waiting call may send files that are not of /proc
		{texts{files: 1, sent: 65}, texts{open: 1}, fdinfo},
		{texts{sent: 1025}, texts{files: 129}, all},
		{texts{files: 500, sent: 525}, texts{}, all},
		{texts{hidden: 65}, texts{}, fdinfo + ", as which 65 descriptors of unreadable processes count"},
		{texts{hidden: 64, sent: 9999}, texts{}, ""},
		{texts{open: 60, hidden: 5}, texts{}, fdinfo + ", as which 5 descriptors of unreadable processes count"},
	} {
		if got := c.now.over(c.before); got != c.want {
			t.Errorf("%+v after %+v: got %q, want %q", c.now, c.before, got, c.want)
		}
	}
}

// TestOpenFilesOfProcAreCounted: each descriptor counts, also if two are of the same file.
func TestOpenFilesOfProcAreCounted(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	before := countTexts([]string{self})
	for _, name := range []string{"maps", "maps", "fdinfo/0"} {
		f, err := os.Open(fmt.Sprintf("/proc/%s/%s", self, name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
	}
	if got := countTexts([]string{self}); got.files != before.files+3 || got.open != before.open+1 {
		t.Errorf("got %+v after %+v, want 3 more, of which 1 of fdinfo", got, before)
	}
}

// TestHiddenDescriptorsCountAsFilesOfProc: a program could keep text in a process whose descriptors the server cannot read.
func TestHiddenDescriptorsCountAsFilesOfProc(t *testing.T) {
	asUser(t, func() {
		_, err := os.ReadDir("/proc/1/fd")
		testkit.Need(t, "a hidden process", errors.Is(err, fs.ErrPermission), "process 1 is another user's outside of containers")
		info, err := os.Stat("/proc/1/fd")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := countTexts([]string{"1"}), int(info.Size()); got.hidden != want {
			t.Errorf("got %d descriptors, want %d", got.hidden, want)
		}
	})
}

// TestHiddenDescriptorsCountAsLocks: a program could keep locks of whole files in a process whose descriptors the server cannot
// read, and end the process that has taken them.
func TestHiddenDescriptorsCountAsLocks(t *testing.T) {
	asUser(t, func() {
		_, err := os.ReadDir("/proc/1/fd")
		testkit.Need(t, "a hidden process", errors.Is(err, fs.ErrPermission), "process 1 is another user's outside of containers")
		info, err := os.Stat("/proc/1/fd")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := wholeOf("1", maxLocks), int(info.Size()); got != want {
			t.Errorf("got %d descriptors, want %d", got, want)
		}
	})
}
