package relay

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Signals of Linux.
const (
	sigINT  = 2
	sigKILL = 9
)

// running is a started process.
type running struct {
	s       *Sandbox
	pid     int
	stdin   *input // nil: it does not stay open
	outputs []*output
	pairs   []*channel

	killed atomic.Bool   // the server has sent SIGKILL
	done   chan struct{} // closed when the process has ended
	once   sync.Once
	exit   backend.Exit // once done is closed
}

// finish says how the process ended. Only the first call has an effect.
func (r *running) finish(e backend.Exit) {
	r.once.Do(func() {
		r.exit = e
		close(r.done)
	})
}

// lost is the end of a process whose sandbox has ended.
var lost = backend.Exit{Signal: sigKILL, Lost: true}

// Kinds of a program's descriptors, as in program/relay.c.
const (
	fileNothing = iota
	fileReads
	fileWrites
)

// startPacket encodes the start of a program.
func startPacket(tag uint32, argv, env []string, dir string, files []byte) ([]byte, error) {
	for _, s := range slices.Concat(argv, env, []string{dir}) {
		if strings.ContainsRune(s, 0) {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "arguments and environment cannot have NUL bytes")
		}
	}
	var text []byte
	for _, s := range slices.Concat([]string{dir}, argv, env) {
		text = append(append(text, s...), 0)
	}
	if len(argv)+len(env) > 4000 || len(text) > 100<<10 {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env is too large: arguments and environment have to stay below 100 KiB")
	}
	const head = 32 + 8*16 + maxFiles
	p := words(uint32(head+len(text)), 'S', tag, uint32(len(argv)), uint32(len(env)), 0, uint32(len(files)), 0)
	p = append(p, make([]byte, 8*16)...)
	p = append(append(p, files...), make([]byte, maxFiles-len(files))...)
	return append(p, text...), nil
}

// kinds returns the kinds of the descriptors of a process.
func kinds(p backend.Process) []byte {
	files := []byte{fileNothing, fileWrites, fileWrites}
	if p.Stdin != nil || p.OpenStdin {
		files[0] = fileReads
	}
	for i := range p.Channels {
		files = append(files, byte(fileWrites-i%2)) // the process writes to the first of each pair
	}
	return files
}

// start starts a process.
func (s *Sandbox) start(p backend.Process) (*running, error) {
	dir := p.Dir
	if dir == "" {
		dir = backend.WorkDir
	}
	r := &running{s: s, done: make(chan struct{})}
	files := kinds(p)
	answer, err := s.c.now(func(a reply) { // before its end is reported
		if pid, err := a.value(0); err == nil {
			r.pid = pid
			s.mu.Lock()
			s.running[pid] = r
			s.mu.Unlock()
		}
	}, func(tag uint32) ([]byte, error) { return startPacket(tag, p.Argv, p.Env, dir, files) })
	if err == nil {
		_, err = answer.value(0)
	}
	if err == nil && len(answer.results) != 1+len(files) {
		err = errGone
	}
	if err != nil {
		return nil, err
	}
	fds := answer.results[1:]
	if files[0] == fileReads {
		in := newInput(s.c, int(fds[0]))
		if p.OpenStdin {
			r.stdin = in
		}
		in.turn <- struct{}{}
		go func() {
			_, _ = in.put(s.context, p.Stdin) // a program need not read all of it
			if !p.OpenStdin {
				in.drop()
			}
			<-in.turn
		}()
	}
	r.outputs = []*output{newOutput(s.c, int(fds[1]), p.Stdout, s.effort), newOutput(s.c, int(fds[2]), p.Stderr, s.effort)}
	for i := 3; i < len(fds); i += 2 {
		pair := &channel{c: s.c, from: int(fds[i]), to: -1, effort: s.effort, over: make(chan struct{})}
		if i+1 < len(fds) {
			pair.to = int(fds[i+1])
		}
		r.pairs = append(r.pairs, pair)
	}
	return r, nil
}

// signal sends a signal to the process, or with a negative pid to its group. If the process has ended,
// it fails with [os.ErrProcessDone].
func (r *running) signal(ctx context.Context, pid, number int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-r.done:
		return os.ErrProcessDone
	default:
	}
	if number == sigKILL {
		r.killed.Store(true)
	}
	l := r.s.c.list()
	l.try("kill", num(pid), num(number))
	a, err := r.s.urgent(l)
	if err != nil {
		return os.ErrProcessDone // it has ended with its container
	}
	if _, err = a.value(0); errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// Signal sends a signal to the process alone.
func (r *running) Signal(ctx context.Context, number int) error { return r.signal(ctx, r.pid, number) }

// Interrupt sends SIGINT to the process and its group.
func (r *running) Interrupt(ctx context.Context) error { return r.signal(ctx, -r.pid, sigINT) }

// WriteStdin writes to the process's stdin.
func (r *running) WriteStdin(ctx context.Context, p []byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if r.stdin == nil {
		return 0, fs.ErrClosed
	}
	return r.stdin.write(ctx, p)
}

// CloseStdin ends the process's stdin.
func (r *running) CloseStdin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.stdin == nil {
		return nil
	}
	return r.stdin.close(ctx)
}

// Resize fails: there are no terminals.
func (*running) Resize(ctx context.Context, _ backend.TerminalSize) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the process has no terminal")
}

// Channel returns the server's end of a pair of private streams.
func (r *running) Channel(pair int) io.ReadWriteCloser {
	if pair < 0 || pair >= len(r.pairs) {
		return nil
	}
	return r.pairs[pair]
}

// Wait waits for the process to end.
func (r *running) Wait(ctx context.Context) (backend.Exit, error) {
	select {
	case <-r.done:
		return r.exit, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	case <-r.s.c.gone:
		r.finish(lost)
		return r.exit, nil
	}
}

// Flush passes the bytes that are in the streams now to the writers.
func (r *running) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.s.c.flush(ctx, r.outputs)
}

// Drain waits until the streams are read to their end. If the process was lost with its container, that
// is their end.
func (r *running) Drain(ctx context.Context) error {
	for _, o := range r.outputs {
		select {
		case <-o.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := errors.Join(r.outputs[0].failed(), r.outputs[1].failed())
	select {
	case <-r.s.c.gone:
		if errors.Is(err, errGone) {
			r.finish(lost) // unless its end was reported
			if r.exit.Lost {
				return nil
			}
		}
	default: // the container lives, so a stream was cut off
	}
	return err
}

// close stops reading, and closes the streams.
func (r *running) close() {
	for _, o := range r.outputs {
		close(o.stop)
	}
	for _, p := range r.pairs {
		_ = p.Close()
	}
}

// exitOf returns how a process ended by its status.
func exitOf(status int, killed bool) backend.Exit {
	if n := status & 0x7f; n != 0 {
		return backend.Exit{Signal: n, Lost: killed && n == sigKILL}
	}
	return backend.Exit{Code: status >> 8 & 0xff}
}
