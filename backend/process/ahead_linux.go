package process

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Processes that are started in a ready sandbox before anybody asks, as the last
// one of its shape would have been, and wait there. Such a process is begun as
// every other is: by the sandbox's init, behind all its walls.

// ahead is a process that waits.
type ahead struct {
	what  backend.Process
	proc  *jail.Proc
	pipes *pipes
}

// aheadOf is what of a process can be started ahead; nil: nothing.
func aheadOf(p backend.Process) *backend.Process {
	pre := p.Prestart
	if pre == nil || pre.Fork != nil || p.Stdin != nil || p.OpenStdin || p.Dir != "" {
		return nil
	}
	if pre.Argv != nil && !slices.Equal(pre.Argv, p.Argv) {
		return nil
	}
	return &backend.Process{Argv: p.Argv, Env: pre.Env, Program: pre.Program}
}

// startAhead starts what will probably be asked for. False: the sandbox may not
// be used.
func (s *sandbox) startAhead(p backend.Process) bool {
	if putProgram(s.slot.Dirs[jail.DirProgram], s.slot.UID(), p.Program) != nil {
		return false
	}
	st, err := openPipes(s.slot.UID(), nil, false, channelBoth, s.effort)
	if err != nil {
		return false
	}
	proc, err := s.slot.Start(jail.Command{Argv: slices.Clone(p.Argv), Env: slices.Clone(p.Env), Dir: backend.WorkDir, Files: st.theirs})
	st.closeTheirs()
	if err != nil {
		st.close(0)
		return false
	}
	s.streams = append(s.streams, stream{st, proc})
	s.ahead = &ahead{p, proc, st}
	return true
}

// goOn has the process that waits become p, if it is one. When it is another, it
// is ended, and p has to be started; an error says that nothing may be any more.
func (s *sandbox) goOn(p backend.Process) (*running, error) {
	s.mu.Lock()
	a := s.ahead
	s.ahead = nil
	s.mu.Unlock()
	if a == nil {
		return nil, nil //nolint:nilnil // none waits, which is no failure
	}
	if next := aheadOf(p); next != nil && a.is(*next) {
		r, err := s.word(a, p)
		if r != nil || err != nil {
			return r, err
		}
	}
	return nil, s.drop(a)
}

// is tells whether the process was started by all that another would be.
func (a *ahead) is(p backend.Process) bool {
	return slices.Equal(a.what.Argv, p.Argv) && slices.Equal(a.what.Env, p.Env) &&
		slices.EqualFunc(a.what.Program, p.Program, func(f, g backend.ProgramFile) bool { return f.Name == g.Name && bytes.Equal(f.Data, g.Data) })
}

// word tells the process to go on. Without an error and a process it has ended
// meanwhile.
func (s *sandbox) word(a *ahead, p backend.Process) (*running, error) {
	select {
	case <-a.proc.Done():
		return nil, nil //nolint:nilnil // it ended before it was asked for
	default:
	}
	files := slices.DeleteFunc(slices.Clone(p.Program), func(f backend.ProgramFile) bool {
		return slices.ContainsFunc(a.what.Program, func(g backend.ProgramFile) bool { return f.Name == g.Name })
	})
	if err := putProgram(s.slot.Dirs[jail.DirProgram], s.slot.UID(), files); err != nil {
		return nil, err
	}
	s.first()
	s.expect(prospect{ahead: aheadOf(p)})
	_ = a.pipes.channel.to.SetWriteDeadline(time.Now().Add(wordLimit))
	if _, err := a.pipes.channel.Write(p.Prestart.Begin); err != nil {
		return nil, nil //nolint:nilerr,nilnil // it has not heard it, so it has done nothing
	}
	_ = a.pipes.channel.to.SetWriteDeadline(time.Time{})
	a.pipes.carry(p.Stdout, p.Stderr)
	switch privateOf(p) {
	case channelBoth:
	case channelFrom:
		a.pipes.channel.mute()
	case noChannel:
		a.pipes.hang()
		a.pipes.channel = nil
	}
	return &running{s: s, proc: a.proc, pipes: a.pipes}, nil
}

// drop ends the process, takes its files away and returns when it is gone.
func (s *sandbox) drop(a *ahead) error {
	_ = a.proc.Signal(int(unix.SIGKILL))
	t := time.NewTimer(dropLimit)
	defer t.Stop()
	select {
	case <-a.proc.Done():
	case <-t.C:
		return errNotDropped
	}
	for _, f := range a.what.Program {
		_ = unix.Unlinkat(s.slot.Dirs[jail.DirProgram], f.Name, 0) // or the next one's of that name takes its place
	}
	return nil
}

var errNotDropped = errors.New("a process that waited does not end")

const (
	wordLimit = time.Second     // that a process that waits may take to hear its word
	dropLimit = 5 * time.Second // that the end of one may take that nobody wants
)
