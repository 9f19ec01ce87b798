package tuning

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// atStart is the timer slack with which the runtime of this process has made its first threads.
var atStart, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)

// TestAnOrdinaryUsersServerStartsAgainWithTheSlack: it does so once, with its arguments, its environment, its input and its name.
func TestAnOrdinaryUsersServerStartsAgainWithTheSlack(t *testing.T) {
	if os.Getenv("RESTART_ME") != "" {
		Restart(os.Args, os.Environ())
		now, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		comm, _ := os.ReadFile("/proc/self/comm")
		in := ""
		_, _ = fmt.Scanln(&in)
		fmt.Printf("slack %d then %d, name %s, input %s, variable %s, argument %s\n", atStart, now, strings.TrimSpace(string(comm)), in, os.Getenv("RESTART_ME"), os.Args[len(os.Args)-1])
		os.Exit(0)
	}
	first := slack
	if os.Geteuid() == 0 { // it may set the slack of its monitor thread, and goes on
		first = usualSlack
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "last")
	cmd.Env, cmd.Stdin = append(os.Environ(), "RESTART_ME=yes"), strings.NewReader("text\n")
	out, err := cmd.CombinedOutput()
	name := filepath.Base(os.Args[0])
	want := fmt.Sprintf("slack %d then %d, name %s, input text, variable yes, argument last\n", first, usualSlack, name[:min(len(name), 15)])
	if err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}
