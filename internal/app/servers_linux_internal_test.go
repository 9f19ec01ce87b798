package app

import (
	"os/exec"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func TestAZombieIsNotAlive(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if !alive(pid) {
		t.Error("got dead, want a running process alive")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the killed process to be a zombie", func() bool { return !alive(pid) })
	_ = cmd.Wait()
	if alive(pid) {
		t.Error("got alive, want a reaped process dead")
	}
}
