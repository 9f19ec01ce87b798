package watch

import (
	"os"
	"testing"
)

func TestPageTablesAreComparedWithMemory(t *testing.T) {
	for _, c := range []struct {
		text                   string
		tables, threads, pages int64
		ok                     bool
	}{
		{"Name:\ta\nVmPTE:\t    1024 kB\nRssAnon:\t  262144 kB\nThreads:\t3\nVmSize:\t 262144 kB\n", 0, 3, 256 << 20 / int64(os.Getpagesize()), true}, // dense memory
		{"Name:\ta\nVmPTE:\t  102400 kB\nRssAnon:\t    2560 kB\nThreads:\t3\n", 102390 << 10, 3, 0, true},
		{"Name:\ta\nThreads:\t3\n", 0, 3, 0, false}, // its first thread has ended
		{"", 0, 0, 0, false},
	} {
		got, ok := tablesIn(c.text)
		if want := (sizes{c.tables, c.threads, c.pages}); got != want || ok != c.ok {
			t.Errorf("%q: got %+v, %t, want %+v, %t", c.text, got, ok, want, c.ok)
		}
	}
}

func TestPageTablesWithoutMemoryAreBounded(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		sum, most, tasks int64
		over             bool
	}{
		{64 * mib, 4 * mib, 100, false},
		{65 * mib, 4 * mib, 100, true},
		{3 * mib, 3 * mib, 160, false},
		{4 * mib, 4 * mib, 160, true},
	} {
		if got := excessOfTables(c.sum, c.most, c.tasks); (got != "") != c.over {
			t.Errorf("%d, %d, %d: got %q, want excess: %t", c.sum, c.most, c.tasks, got, c.over)
		}
	}
}
