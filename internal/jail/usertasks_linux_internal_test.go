package jail

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestBuildersHaveLowerLimits: the server keeps a part of its user's tasks and signals. Its own limits stay as
// they are while it starts a builder.
func TestBuildersHaveLowerLimits(t *testing.T) {
	cfg := testConfig(t)
	tasks, signals := UserTasks(), finite(unix.RLIMIT_SIGPENDING)
	b := StartBuilder(cfg.Mode, cfg.FirstUID, 0, nil)
	<-b.started
	t.Cleanup(b.Close)
	if b.err != nil {
		t.Fatal(b.err)
	}
	if UserTasks() != tasks || finite(unix.RLIMIT_SIGPENDING) != signals {
		t.Errorf("got %d tasks and %d signals for the server, want %d and %d", UserTasks(), finite(unix.RLIMIT_SIGPENDING), tasks, signals)
	}
	for name, c := range map[string]struct {
		which int
		want  uint64
	}{"tasks": {unix.RLIMIT_NPROC, below(tasks, ownTasks)}, "signals": {unix.RLIMIT_SIGPENDING, below(signals, ownSignals)}} {
		var l unix.Rlimit
		if err := unix.Prlimit(b.pid, c.which, nil, &l); err != nil {
			t.Fatal(err)
		}
		if c.want != 0 && l.Cur != c.want {
			t.Errorf("%s: got %d for the builder, want %d", name, l.Cur, c.want)
		}
	}
}
