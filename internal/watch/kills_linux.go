package watch

import (
	"fmt"
	"strconv"
)

// maxKills is how many processes of a sandbox the memory limit may end before the server ends the
// rest. Each check allows one more. The kernel writes a line to the host's log for each kill. For ten kills in five
// seconds, it also writes a line for each process of the sandbox. So a kill counts once more for each
// listedAsKill processes.
const (
	maxKills     = 64
	listedAsKill = 64
)

// kills counts the processes that the memory limit has ended; used by Objects.run alone.
type kills struct{ seen, recent int }

// look records the total number of kills so far. processes returns how many processes the sandbox has. It reports
// whether there were too many kills recently.
func (k *kills) look(now int, processes func() int) bool {
	more := max(now-k.seen, 0)
	if more > 0 {
		more *= 1 + processes()/listedAsKill
	}
	k.recent = max(k.recent-1, 0) + more
	k.seen = now
	over := k.recent > maxKills
	if over {
		k.recent = 0
	}
	return over
}

// overKills returns a description if the memory limit has ended too many processes of the sandbox,
// and "" otherwise. Without a cgroup, a Group ends all of them at once.
func (s *Target) overKills() string {
	if s.Group == nil {
		return ""
	}
	release, err := s.Hold()
	if err != nil {
		return ""
	}
	defer release()
	most := maxKills
	over := s.kills.look(s.Group.OOMKills(), func() int {
		n := len(descendants(strconv.Itoa(s.Slot.PID()), nil))
		most = max(maxKills/(1+n/listedAsKill), 1)
		return n
	})
	if !over {
		return ""
	}
	return fmt.Sprintf("more than %d processes that the memory limit ended", most)
}
