package watch

import (
	"fmt"
	"os"
	"strconv"
	"testing"
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
