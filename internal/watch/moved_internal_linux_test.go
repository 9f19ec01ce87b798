package watch

import (
	"math"
	"os"
	"strconv"
	"testing"
)

// TestAttackForksThatEndHideNoMemory: a page counts in equal parts at the processes that share it. If some of them end before
// they are read, or begin after the list was made, the sum lacks their parts. Their memory then counts, and the sum is not sure,
// so that the programs are stopped for the next one.
func TestAttackForksThatEndHideNoMemory(t *testing.T) {
	self, p := strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())
	for name, c := range map[string]struct {
		before, after []string
		sure          bool
	}{
		"Stays":  {[]string{p}, []string{p}, true},
		"Ends":   {[]string{self, p}, []string{p}, false},
		"Begins": {[]string{p}, []string{self, p}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, lists := &Group{outside: true}, 0
			s, ok := w.see(self)
			if !ok || s.resident == 0 {
				t.Fatal("the test's process shows no memory")
			}
			sum, sure := w.sumOfAll(func() []string {
				lists++
				return [][]string{c.before, c.after}[lists-1]
			}, math.MaxInt64)
			if sure != c.sure || !sure && sum < s.resident/2 { // the test's process may have less by then
				t.Errorf("got %d bytes, sure %t, want sure %t, and at least half of %d bytes if not", sum, sure, c.sure, s.resident)
			}
		})
	}
}

// TestProcessesThatExecuteMeanwhileCount: before, they may have shared memory with others.
func TestProcessesThatExecuteMeanwhileCount(t *testing.T) {
	before := map[string]int64{"2 7 a": 50, "3 8 a": 40, "4 9 a": 1}
	after := map[string]int64{"2 7 a": 60, "3 8 b": 5, "4 9 a": 1}
	if got := moved(before, after); got != 45 {
		t.Errorf("got %d bytes, want 45", got)
	}
}
