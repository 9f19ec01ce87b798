package host

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// TestNoCommandWhileFilesAreUsedUp: a server that can open no more files cannot list homes and other directories, so it does not find the keys in them. A command that
// began then could read these keys. So the server refuses the command.
func TestNoCommandWhileFilesAreUsedUp(t *testing.T) { // not parallel: no test can open a file meanwhile
	dir := plainfile.Unlinked(t.TempDir())
	t.Setenv("HOME", dir)
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := &Host{cfg: Config{Changeable: dir}}
	waits := exec.CommandContext(t.Context(), "cat") // for its standard input
	in, err := waits.StdinPipe()
	if err = errors.Join(err, waits.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(in.Close(), waits.Wait()) }()
	looks := map[string]func(b *budget) error{
		"closed places":  func(b *budget) error { closedPlaces(b, nil); return b.over() },
		"a home":         func(b *budget) error { closedOf(b, []string{dir}, nil); return b.over() },
		"names":          func(b *budget) error { b.names(dir); return b.over() },
		"a file":         func(b *budget) error { b.read(dir+"/file", 10); return b.over() },
		"the workspace":  func(b *budget) error { h.changeable(b); return b.over() },
		"a process":      func(*budget) error { _, _, err := observed(waits.Process.Pid, job{}, child{}); return err },
		"a program":      func(*budget) error { return h.unchangeable("/somewhere", &program{}) },
		"homes to write": func(*budget) error { return errors.New(hiddenAtHome("/somewhere", nil)) },
	}
	var old unix.Rlimit
	if err := errors.Join(unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &old), unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: old.Max}, nil)); err != nil {
		t.Fatal(err)
	}
	got := map[string]error{}
	for name, look := range looks {
		got[name] = look(newBudget(anyTime, maxLooked))
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &old, nil); err != nil {
		t.Fatal(err)
	}
	for name, err := range got {
		if err == nil || err.Error() == "" {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if sandboxmcp.CodeOf(got["closed places"]) != sandboxmcp.CodeExecutionFailed || !errors.Is(got["a process"], errUnwalled) {
		t.Errorf("got %v and %v, want that files are used up", got["closed places"], got["a process"])
	}
}
