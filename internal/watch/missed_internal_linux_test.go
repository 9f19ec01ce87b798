package watch

import "testing"

// TestAttackProcessesThatPassMemoryOnAreMissedForShort: a process that was listed and has ended before it is read may have passed its
// memory on. If nearly all measurements miss one, the next has to stop the programs.
func TestAttackProcessesThatPassMemoryOnAreMissedForShort(t *testing.T) {
	w := &Group{}
	w.spent.last = map[string]times{"2 7": {}}
	for name, c := range map[string]struct {
		s    seen
		ok   bool
		want bool
	}{
		"Shows":          {seen{start: "9", reserved: 1}, true, false},
		"HasEnded":       {seen{start: "7"}, true, false}, // it was seen before
		"IsGone":         {seen{}, false, true},
		"IsZombieAtOnce": {seen{start: "9"}, true, true},
		"IsBlind":        {seen{start: "9", blind: true}, true, false},
	} {
		if got := w.misses("2", c.s, c.ok); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
	for part, above := range map[int]bool{10: true, 8: true, 5: false, 0: false} { // tenths of the measurements that miss one
		w.missed = 0
		for i := range 2 * mostMissed {
			w.tally(i%10 < part)
		}
		if got := w.missed > mostMissed; got != above {
			t.Errorf("%d of 10 measurements miss one: got too many %t, want %t", part, got, above)
		}
	}
}
