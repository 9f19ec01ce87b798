package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Only a sandbox that was opened for terminals has a devpts and the right to open its files. Such
// sandboxes are never built in advance, so other sandboxes have no cost.

// mostTerminals is how many sandboxes may have terminals. Each has eight at most, and the kernel
// has 3072 outside of the host's own devpts (kernel.pty.max, kernel.pty.reserve).
const mostTerminals = 128

// reserveTerminals reserves one of mostTerminals. On error it clears spec.Terminal, so that
// returnTerminals does nothing.
func (b *Backend) reserveTerminals(h *hall, spec *backend.Spec) error {
	if !spec.Terminal {
		return nil
	}
	err := error(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case h.Mode() == jail.ModePlain:
		err = sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "a sandbox at isolation %s has no terminals", sandboxmcp.TierL1).
			WithHint("run `sandboxmcp doctor` to see what keeps namespaces from being made")
	case h.Mode() == jail.ModeContainer:
		err = sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "sandboxes of the %s backend have no terminals", b.Name()).
			WithHint("use the process backend for programs that need a terminal")
	case b.terminals >= mostTerminals:
		err = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "%d sandboxes have terminals, and no more can", mostTerminals).WithHint("close some of them")
	default:
		b.terminals++
		return nil
	}
	spec.Terminal = false
	return err
}

func (b *Backend) returnTerminals(spec backend.Spec) {
	if !spec.Terminal {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.terminals--
}

// input returns the stdin of a process. Without one it reads the server's /dev/null, which programs in
// a container cannot open by name: theirs is another file. There it is a pipe without bytes.
func (s *sandbox) input(stdin []byte) []byte {
	if stdin == nil && s.b.cfg.Containers != nil {
		return []byte{}
	}
	return stdin
}

// openStreams makes all streams of a process. It first closes those of processes that have
// ended, because their terminals count among those of the sandbox.
func (s *sandbox) openStreams(p backend.Process) (*pipes, error) {
	s.mu.Lock()
	s.streams = slices.DeleteFunc(s.streams, stream.over)
	s.mu.Unlock()
	if p.Terminal == nil {
		return openPipes(s.slot.UID(), s.input(p.Stdin), p.OpenStdin, privateOf(p), s.effort)
	}
	st := &pipes{effort: s.effort}
	err := st.terminal(s.slot, *p.Terminal, p.Stdin)
	for left := privateOf(p); err == nil && left > noChannel; left -= channelBoth {
		err = st.private(min(left, channelBoth))
	}
	if err != nil {
		st.closeTheirs()
		st.close(0)
		return nil, err
	}
	return st, nil
}

// terminal makes a terminal the three streams. The server reads and writes its master through two
// descriptors.
func (p *pipes) terminal(slot *jail.Slot, size backend.TerminalSize, stdin []byte) error {
	master, slave, err := slot.Terminal(size.Columns, size.Rows)
	if err != nil {
		return err
	}
	in, err := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, unix.Close(master), unix.Close(slave))
	}
	p.theirs = append(p.theirs, slave)
	for range 2 {
		fd, bad := unix.FcntlInt(uintptr(slave), unix.F_DUPFD_CLOEXEC, 0)
		if bad != nil {
			return errors.Join(bad, unix.Close(master), unix.Close(in))
		}
		p.theirs = append(p.theirs, fd)
	}
	r, err := jail.Polled(master, "terminal")
	if err != nil {
		return errors.Join(err, unix.Close(in))
	}
	p.outputs = append(p.outputs, &output{inlet: newInlet(r, p.effort), tty: true})
	var w *os.File
	if w, err = jail.Polled(in, "terminal"); err != nil {
		return err
	}
	p.ours = append(p.ours, w)
	p.stdin = newInflow(w, stdin)
	p.stdin.tty = true
	return nil
}

// Resize sets the size of the process's terminal.
func (r *running) Resize(ctx context.Context, size backend.TerminalSize) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	out := r.pipes.outputs[0]
	if !out.tty {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the process has no terminal")
	}
	var bad error
	err := out.use(func(fd uintptr) { bad = jail.ResizeTerminal(int(fd), size.Columns, size.Rows) })
	if errors.Is(err, os.ErrClosed) {
		return fs.ErrClosed
	}
	return errors.Join(err, bad)
}
