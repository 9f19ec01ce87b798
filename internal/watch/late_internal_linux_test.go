package watch

import (
	"testing"
	"time"
)

// TestProgramsAreStoppedWhileALookIsLate, and ended if they take memory although they are stopped.
func TestProgramsAreStoppedWhileALookIsLate(t *testing.T) {
	for name, c := range map[string]struct {
		shown     []int64 // each time; then the look ends
		wentOn    int     // they went on when they were shown for this time; 0: never
		gone      bool
		wantHalts int
		wantEnded bool
	}{
		"LookEnds":     {shown: []int64{100, 100, 110}, wantHalts: 2},
		"TakeMore":     {shown: []int64{100, 130, 151}, wantHalts: 2, wantEnded: true},
		"WentOn":       {shown: []int64{100, 160, 160, 170}, wentOn: 1, wantHalts: 3},
		"WentOnBefore": {shown: []int64{100, 160, 160, 211}, wentOn: 1, wantHalts: 3, wantEnded: true},
		"AreEndedThen": {shown: []int64{100}, gone: true, wantHalts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			looks, halts, ended, began := 0, 0, false, time.Now()
			stopWhile(over, 50, stopping{
				halt: func() (bool, bool) { halts++; return true, c.gone },
				shown: func() int64 {
					looks++
					if looks == len(c.shown) && !c.wantEnded && !c.gone {
						close(over)
					}
					return c.shown[looks-1]
				},
				wentOn: func() time.Time {
					if c.wentOn > 0 && looks >= c.wentOn {
						return began
					}
					return time.Time{}
				},
				exceeded: func() { ended = true },
			})
			if ended != c.wantEnded || halts < c.wantHalts {
				t.Errorf("got ended %v after %d stops, want %v after %d", ended, halts, c.wantEnded, c.wantHalts)
			}
		})
	}
}
