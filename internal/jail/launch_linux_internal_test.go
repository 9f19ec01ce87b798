package jail

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLaunchFails: if the kernel refuses the id maps, the error says so, and no process is left.
func TestLaunchFails(t *testing.T) {
	before := len(Children("self"))
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ours)
	pid, pidfd, err := launch{namespaces: unix.CLONE_NEWUSER}.start(ours, theirs) // maps of no ids
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("got process %d, descriptor %d, %v, want %v", pid, pidfd, err, unix.EINVAL)
	}
	if got := len(Children("self")); got != before {
		t.Errorf("got %d children, want %d", got, before)
	}
}

// TestLaunchWithoutRoom: if the server has no room for the descriptor of the process, or the launcher is killed, the
// error says so, and no process is left.
func TestLaunchWithoutRoom(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, launcher int)
		want  error
	}{
		"NoDescriptors": {func(t *testing.T, _ int) { withoutDescriptors(t) }, unix.EMFILE},
		"Killed": {func(t *testing.T, launcher int) {
			if err := unix.Kill(launcher, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(Children("self"))
			ours, theirs, err := pair()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(ours)
			l := launch{namespaces: unix.CLONE_NEWUSER, uid: idMap{0, os.Geteuid()}, gid: idMap{0, os.Getegid()}, size: 1}
			launcher, err := l.program(theirs, nil)
			closeAll(theirs)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			t.Run("launch", func(t *testing.T) {
				c.spoil(t, launcher)
				go func() {
					_, _, err := l.launch(launcher, ours)
					ended <- err
				}()
				late := time.NewTimer(time.Minute)
				defer late.Stop()
				select {
				case err = <-ended:
				case <-late.C:
					t.Fatal("got no answer")
				}
			})
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got := len(Children("self")); got != before {
				t.Errorf("got %d children, want %d", got, before)
			}
		})
	}
}

// withoutDescriptors keeps the process from opening any until the end of the test.
func withoutDescriptors(t *testing.T) {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: l.Max}); err != nil {
		t.Fatal(err)
	}
}

// TestALauncherStartsOneBuilder: a launcher that was started ahead makes the builder of a jail, and one that is closed ends.
func TestALauncherStartsOneBuilder(t *testing.T) {
	cfg, before := testConfig(t), len(Children("self"))
	l := StartLauncher()
	cfg.Builder = StartBuilder(cfg.Mode, cfg.FirstUID, 0, l)
	l.Close() // has nothing to end
	whole(t, cfg)
	unused := StartLauncher()
	unused.Close()
	unused.Close()
	if _, _, ok := unused.take(); ok {
		t.Error("a closed launcher: got it, want none")
	}
	if got := len(Children("self")); got != before {
		t.Errorf("got %d children, want %d", got, before)
	}
}
