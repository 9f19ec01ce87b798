package jail

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPIDOfAnExecutedProgram: with Executed, PID waits until the program is executed or cannot be.
func TestPIDOfAnExecutedProgram(t *testing.T) {
	_, s := testSlot(t)
	for name, c := range map[string]struct {
		argv []string
		err  error
	}{
		"Exists":       {[]string{"/bin/sh", "-c", ":"}, nil},
		"DoesNotExist": {[]string{"/bin/nothing"}, unix.ENOENT},
	} {
		p, err := s.Start(Command{Argv: c.argv, Dir: "/", Executed: true})
		if err != nil {
			t.Fatal(err)
		}
		pid := p.PID()
		<-p.Done()
		if _, err = p.Exit(); !errors.Is(err, c.err) || (pid != 0) != (c.err == nil) {
			t.Errorf("%s: got the process id %d and %v, want %v", name, pid, err, c.err)
		}
	}
}
