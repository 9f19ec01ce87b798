package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Prune ends every process of the sandbox but those of keep and what these have started. An
// orphan has init as its parent, so it is ended. A sandbox without a pid namespace cannot do it.
func (s *sandbox) Prune(ctx context.Context, keep ...backend.Running) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.hall.Mode() == jail.ModePlain || s.frozen.Load() {
		return errors.ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	release, err := s.hold()
	if err != nil {
		return err
	}
	defer release()
	var kept []int
	for _, k := range keep {
		r, ok := k.(*running)
		if !ok || r.s != s {
			return fmt.Errorf("prune: %T is no process of this sandbox", k)
		}
		kept = append(kept, r.proc.PID())
	}
	return s.endFreely(s.sparing(), func() error { return s.prune(ctx, kept) })
}

const (
	pruneLimit = 2 * time.Second // how long Prune tries
	stopRounds = 25              // how often prune tries to stop all processes before it kills them
)

// prune stops the processes before it kills them. Otherwise a program that forks quickly could
// fill the places of those that are killed. It does not wait long for that, because a process
// that waits for its vfork does not stop.
func (s *sandbox) prune(ctx context.Context, keep []int) error {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	empty := false // the last look found nothing
	for round := 0; ; round++ {
		found, err := s.others(keep)
		if err != nil || len(found) == 0 && empty {
			return err
		}
		empty = len(found) == 0 // the kernel may leave out living children while another one is being reaped
		signal := unix.SIGKILL
		if round < stopRounds && slices.ContainsFunc(found, func(p member) bool { return !p.stopped }) {
			signal = unix.SIGSTOP
		}
		for _, p := range found {
			if err := s.slot.Signal(p.pid, int(signal)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// member is a process of a sandbox.
type member struct {
	pid     int // in the sandbox
	stopped bool
}

// others lists the processes of the sandbox that still run, without init, without those of keep
// (pids in the sandbox), and without what these have started.
func (s *sandbox) others(keep []int) ([]member, error) {
	root := strconv.Itoa(s.slot.PID())
	_, depth, err := look(root)
	if err != nil {
		return nil, fmt.Errorf("look at the sandbox: %w", err)
	}
	if _, err := os.Stat("/proc/" + root + "/task/" + root + "/children"); err != nil {
		return nil, fmt.Errorf("list the processes of the sandbox: %w", errors.Join(errors.ErrUnsupported, err)) // a kernel without CONFIG_PROC_CHILDREN
	}
	var found []member
	for next := jail.Children(root); len(next) > 0; {
		pid := next[0]
		next = next[1:]
		p, level, err := look(pid)
		if err != nil || level < depth || slices.Contains(keep, p.pid) {
			continue // it has ended, or it is kept
		}
		if !p.gone {
			found = append(found, p.member)
		}
		next = append(next, jail.Children(pid)...)
	}
	return found, nil
}

// seen is a process as the host sees it.
type seen struct {
	member

	gone bool // it has ended, and its parent has not waited for it
}

// look reads a process of the host: its pid in its innermost namespace, and the depth of that.
func look(pid string) (p seen, depth int, err error) {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return p, 0, err
	}
	ended, threads := false, 0
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		switch {
		case len(f) == 0:
		case name == "State":
			ended, p.stopped = f[0] == "Z" || f[0] == "X", f[0] == "T" || f[0] == "t"
		case name == "Threads":
			threads, _ = strconv.Atoi(f[0])
		case name == "NSpid":
			depth = len(f)
			p.pid, err = strconv.Atoi(f[depth-1])
		}
	}
	p.gone = ended && threads < 2 // a process whose first thread has ended lives on in the others
	return p, depth, err
}
