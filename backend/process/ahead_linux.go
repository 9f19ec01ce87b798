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

// This file starts processes in a ready sandbox before Start is called, with the arguments of the
// last process of the sandbox's key. The process waits there for its caller. The sandbox's init
// starts it like every other process, behind all walls.

// ahead is a process that was started in advance and waits.
type ahead struct {
	what  backend.Process
	proc  *jail.Proc
	pipes *pipes
}

// alone returns how a process is started in advance without a fork server, or nil.
func alone(p backend.Process) *backend.Prestart {
	if p.Prestart != nil && p.Prestart.Fork != nil {
		return p.Prestart.Alone
	}
	return p.Prestart
}

// aheadOf returns the part of a process that can be started in advance, or nil.
func aheadOf(p backend.Process) *backend.Process {
	pre := alone(p)
	if pre == nil || p.Stdin != nil || p.OpenStdin || p.Dir != "" || privateOf(p) > channelBoth { // a waiting process has pipes and two channels
		return nil
	}
	if pre.Argv != nil && !slices.Equal(pre.Argv, p.Argv) {
		return nil
	}
	return &backend.Process{Argv: p.Argv, Env: pre.Env, Program: pre.Program}
}

// startAhead starts the process that will probably be requested. With executed it returns when the process
// is executed. If it returns false, the sandbox may not be used.
func (s *sandbox) startAhead(p backend.Process, executed bool) bool {
	if s.putProgram(p.Program) != nil {
		return false
	}
	st, err := openPipes(s.slot.UID(), s.input(nil), false, channelBoth, s.effort)
	if err != nil {
		return false
	}
	proc, err := s.slot.Start(jail.Command{Argv: slices.Clone(p.Argv), Env: slices.Clone(p.Env), Dir: backend.WorkDir, Files: st.theirs, Executed: executed})
	st.closeTheirs()
	if err != nil {
		st.close(0)
		return false
	}
	s.streams = append(s.streams, stream{st, proc})
	s.ahead = &ahead{p, proc, st}
	if executed {
		return proc.PID() != 0
	}
	return true
}

// goOn turns the waiting process into p and returns it, if it was started for p. Otherwise it kills
// the waiting process and returns nil, so that the caller starts p. On error the sandbox must not
// be used.
func (s *sandbox) goOn(p backend.Process) (*running, error) {
	s.mu.Lock()
	a := s.ahead
	s.ahead = nil
	s.mu.Unlock()
	if a == nil {
		return nil, nil //nolint:nilnil // none waits, which is no error
	}
	if next := aheadOf(p); next != nil && a.is(*next) {
		r, err := s.word(a, p)
		if r != nil || err != nil {
			return r, err
		}
	}
	return nil, s.drop(a)
}

// is reports whether the process was started with the same arguments, environment and files.
func (a *ahead) is(p backend.Process) bool {
	return slices.Equal(a.what.Argv, p.Argv) && slices.Equal(a.what.Env, p.Env) &&
		slices.EqualFunc(a.what.Program, p.Program, func(f, g backend.ProgramFile) bool { return f.Name == g.Name && bytes.Equal(f.Data, g.Data) })
}

// word sends Begin to the waiting process, which then continues as p. If the process has ended
// meanwhile, word returns nil without an error.
func (s *sandbox) word(a *ahead, p backend.Process) (*running, error) {
	select {
	case <-a.proc.Done():
		return nil, nil //nolint:nilnil // it ended before it was requested
	default:
	}
	files := slices.DeleteFunc(slices.Clone(p.Program), func(f backend.ProgramFile) bool {
		return slices.ContainsFunc(a.what.Program, func(g backend.ProgramFile) bool { return f.Name == g.Name })
	})
	if err := s.putProgram(files); err != nil {
		return nil, err
	}
	if key, _ := s.forkFor(p); key != "" { // it counts as a use of the fork server, so that later programs are forked
		s.b.forkServerFor(s.hall, key, p.Prestart, s.spec)
	}
	_ = a.pipes.channel.to.SetWriteDeadline(time.Now().Add(wordLimit))
	begin := func() error { // packages that the process has imported can hold the lock of the pipe
		_, err := a.pipes.channel.Write(alone(p).Begin)
		return err
	}
	if err := s.orKill(begin); err != nil {
		return nil, nil //nolint:nilerr,nilnil // it did not get Begin, so it has done nothing
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

// drop kills the process, waits for its end and removes its files.
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
		_ = unix.Unlinkat(s.slot.Dirs[jail.DirProgram], f.Name, 0) // otherwise the next process would see this file
	}
	return nil
}

var errNotDropped = errors.New("a process that waited does not end")

const (
	wordLimit = time.Second     // most time that a waiting process may take to read Begin
	dropLimit = 5 * time.Second // most time that a dropped process may take to end
)
