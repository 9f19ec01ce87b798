package watch

import "testing"

func TestPageTablesAreComparedWithMemory(t *testing.T) {
	for _, c := range []struct {
		text            string
		tables, threads int64
		ok              bool
	}{
		{"Name:\ta\nVmPTE:\t    1024 kB\nRssAnon:\t  262144 kB\nThreads:\t3\n", 0, 3, true}, // dense memory
		{"Name:\ta\nVmPTE:\t  102400 kB\nRssAnon:\t    2560 kB\nThreads:\t3\n", 102390 << 10, 3, true},
		{"Name:\ta\nThreads:\t3\n", 0, 3, false}, // its first thread has ended
		{"", 0, 0, false},
	} {
		tables, threads, ok := tablesIn(c.text)
		if tables != c.tables || threads != c.threads || ok != c.ok {
			t.Errorf("%q: got %d, %d, %t, want %d, %d, %t", c.text, tables, threads, ok, c.tables, c.threads, c.ok)
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
