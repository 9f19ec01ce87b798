package watch

import "testing"

// TestKillsOfACrowdCountMore: the more processes a sandbox has, the fewer of them the memory limit may end, because
// the kernel lists all of them in the host's log.
func TestKillsOfACrowdCountMore(t *testing.T) {
	for _, c := range []struct {
		name             string
		processes, kills int
		over             bool
		thenKills        int
		thenOver         bool
	}{
		{name: "few processes", processes: 10, kills: 64, thenKills: 1 + 1, thenOver: true},
		{name: "few kills of a crowd", processes: 900, kills: 4, thenKills: 1, thenOver: true},
		{name: "many kills of a crowd", processes: 900, kills: 5, over: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k kills
			processes := func() int { return c.processes }
			if got := k.look(c.kills, processes); got != c.over {
				t.Errorf("%d kills: got %v, want %v", c.kills, got, c.over)
			}
			if got := k.look(c.kills+c.thenKills, processes); got != c.thenOver {
				t.Errorf("%d kills more: got %v, want %v", c.thenKills, got, c.thenOver)
			}
		})
	}
	var k kills
	k.look(64, func() int { return 1 })
	for range 64 {
		if k.look(64, func() int { t.Error("processes are counted although there was no kill"); return 0 }) {
			t.Error("without further kills: got too many, want not")
		}
	}
	if k.look(64+64, func() int { return 1 }) {
		t.Error("64 kills after a rest: got too many, want not")
	}
}
