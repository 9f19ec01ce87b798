package artifact

import (
	"testing"
	"time"
)

// TestWholeSecondsAreFreshForLonger: a file system that rounds times to seconds gives all changes within one or two of them the same
// time. So a file or an empty directory that was read in the meantime counts as changed.
func TestWholeSecondsAreFreshForLonger(t *testing.T) {
	read := time.Unix(1_000_000_000, 900_000_000)
	for name, c := range map[string]struct {
		changed time.Time
		want    bool
	}{
		"InTheTick":            {read.Add(-freshFor / 2), true},
		"BeforeTheTick":        {read.Add(-2 * freshFor), false},
		"InTheSecond":          {read.Truncate(time.Second), true},
		"InTheSecondBefore":    {read.Truncate(time.Second).Add(-time.Second), true},
		"SecondsBefore":        {read.Truncate(time.Second).Add(-2 * time.Second), false},
		"AheadByAClock":        {read.Add(time.Second), true},
		"SetAheadByTheProgram": {read.Add(time.Hour), false},
	} {
		if got := isFresh(c.changed, read); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
