package watch

import "fmt"

// maxKills is how many processes of a sandbox the memory limit may end before the server ends the
// rest. Each check allows one more. The kernel writes a line to the host's log for each kill.
const maxKills = 64

// kills counts the processes that the memory limit has ended; used by Objects.run alone.
type kills struct{ seen, recent int }

// look records the total number of kills so far. It reports whether there were too many recently.
func (k *kills) look(now int) bool {
	k.recent = max(k.recent-1, 0) + max(now-k.seen, 0)
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
	if !s.kills.look(s.Group.OOMKills()) {
		return ""
	}
	return fmt.Sprintf("more than %d processes that the memory limit ended", maxKills)
}
