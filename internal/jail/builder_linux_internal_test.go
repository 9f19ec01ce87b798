package jail

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// builders counts the children of this process that are builders.
func builders(t *testing.T) (n int) {
	t.Helper()
	for _, pid := range Children("self") {
		if name, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.HasPrefix(string(name), "sandboxmcp-init") {
			n++
		}
	}
	return n
}

// TestBuilderStartedInAdvance: a jail takes a builder that was started for it, once, and none of another
// mode. One that no jail takes leaves no process.
func TestBuilderStartedInAdvance(t *testing.T) {
	cfg := testConfig(t)
	before := builders(t)
	b := StartBuilder(cfg.Mode, cfg.FirstUID, 0, nil)
	t.Cleanup(b.Close)
	cfg.Builder = b
	for want := 1; want <= 2; want++ {
		j, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		if got := builders(t) - before; got != want {
			t.Errorf("got %d builders for %d jails", got, want)
		}
	}
	other := StartBuilder(ModePlain, 0, 0, nil)
	<-other.started
	cfg.Builder = other
	j, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if got := builders(t) - before; got != 4 {
		t.Errorf("got %d builders, want 4: one of another mode is not taken", got)
	}
	other.Close()
	other.Close()
	b.Close() // its jail closes it
	if got := builders(t) - before; got != 3 {
		t.Errorf("got %d builders, want those of the three jails", got)
	}
}

// TestABuilderThatHasEndedIsReplaced: a builder that was killed before a jail took it does not lead to weaker walls
// or to an error.
func TestABuilderThatHasEndedIsReplaced(t *testing.T) {
	cfg := testConfig(t)
	before := builders(t)
	cfg.Builder = StartBuilder(cfg.Mode, cfg.FirstUID, 0, nil)
	<-cfg.Builder.started
	if err := unix.PidfdSendSignal(cfg.Builder.pidfd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := waitPidfd(cfg.Builder.pidfd, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	j, err := Open(cfg)
	if err != nil {
		t.Fatalf("got %v, want a jail with another builder", err)
	}
	defer func() { _ = j.Close() }()
	if got := builders(t) - before; got != 1 {
		t.Errorf("got %d builders, want 1", got)
	}
}
