package watch

import "testing"

// TestProgramsAreStoppedWhileALookIsLate, and ended if they take memory although they are stopped.
func TestProgramsAreStoppedWhileALookIsLate(t *testing.T) {
	for name, c := range map[string]struct {
		shown     []int64 // each time; then the look ends
		gone      bool
		wantHalts int
		wantEnded bool
	}{
		"LookEnds":     {shown: []int64{100, 100, 110}, wantHalts: 2},
		"TakeMore":     {shown: []int64{100, 130, 151}, wantHalts: 2, wantEnded: true},
		"AreEndedThen": {shown: []int64{100}, gone: true, wantHalts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			looks, halts, ended := 0, 0, false
			stopWhile(over, 50, stopping{
				halt: func() (bool, bool) { halts++; return true, c.gone },
				shown: func() int64 {
					looks++
					if looks == len(c.shown) && !c.wantEnded && !c.gone {
						close(over)
					}
					return c.shown[looks-1]
				},
				exceeded: func() { ended = true },
			})
			if ended != c.wantEnded || halts < c.wantHalts {
				t.Errorf("got ended %v after %d stops, want %v after %d", ended, halts, c.wantEnded, c.wantHalts)
			}
		})
	}
}
