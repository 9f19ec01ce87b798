package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// fake is a backend whose sandboxes are made of nothing: a program is a
// function, and everything that the engine asks for is noted in order.
type fake struct {
	// program is what runs; nil: it ends at once with exit code 0.
	program func(r *fakeRun) backend.Exit
	// onOpen, onStart and onWalls may refuse; nil: they do not.
	onOpen  func(ctx context.Context, spec backend.Spec) error
	onStart func(p backend.Process) error
	onWalls func() error
	onKill  func() error
	onWait  func() error // the sandbox is lost: what Wait returns in place of an exit
	onRead  func() error // output is lost: what Flush and Drain return
	onHear  func() error // the channel cannot be read: what it fails with, after the program's end
	// onNetwork opens a way out; nil: sandboxes have none.
	onNetwork func(ports []int) (*backend.Network, error)
	onFiles   func(backend.Files) backend.Files // stands before the files of a sandbox; nil: nothing does
	usage     backend.Usage
	tier      sandboxmcp.Tier                // that is seen; empty: L3
	files     map[string]string              // what every program leaves
	images    map[sandboxmcp.Language]string // of its interpreters; nil: every sandbox has them
	search    string                         // where its interpreters are; empty: searchPath

	mu      sync.Mutex
	calls   []string
	opened  int
	closed  int
	specs   []backend.Spec
	started []backend.Process
	over    bool // Close was called
}

func (f *fake) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

// seen returns the calls so far.
func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// starts returns how many programs were started, and how many sandboxes are open.
func (f *fake) starts() (started, open int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.started), f.opened - f.closed
}

func (f *fake) Name() string { return "fake" }

func (f *fake) walls() sandboxmcp.Isolation {
	return sandboxmcp.Isolation{Tier: cmp.Or(f.tier, sandboxmcp.TierL3), Backend: "fake", Walls: []string{"thought"}, Weak: []string{"everything"}, Kernel: "0", PolicySHA256: strings.Repeat("0", 64)}
}

// host knows interpreters on a path.
func (f *fake) host() *process.Backend {
	if f.search == "" {
		return fakeHost()
	}
	return process.New(process.Config{SearchPath: f.search, ShimEnv: []string{"PATH=/usr/bin:/bin"}})
}

var fakeHost = sync.OnceValue(func() *process.Backend {
	return process.New(process.Config{SearchPath: searchPath, ShimEnv: []string{"PATH=/usr/bin:/bin"}})
})

func (f *fake) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	i, err := f.host().Interpreter(ctx, l)
	i.Image = f.images[l]
	return i, err
}

func (f *fake) Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error) {
	return f.host().Interpreters(ctx)
}

func (f *fake) Capabilities(context.Context) backend.Capabilities {
	return backend.Capabilities{Available: true, Isolation: f.walls()}
}

func (f *fake) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	f.mu.Lock()
	f.calls, f.specs = append(f.calls, "open"), append(f.specs, spec)
	f.mu.Unlock()
	if f.onOpen != nil {
		if err := f.onOpen(ctx, spec); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	s := &fakeSandbox{f: f, killed: make(chan struct{})}
	if f.onNetwork != nil {
		return fakeConnected{s}, nil
	}
	return s, nil
}

func (f *fake) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	return nil
}

// fakeConnected is a sandbox that can be given a network.
type fakeConnected struct{ *fakeSandbox }

func (s fakeConnected) Network(_ context.Context, ports []int) (*backend.Network, error) {
	s.f.note("network")
	return s.f.onNetwork(ports)
}

func (s fakeConnected) Refuse(context.Context) (*backend.Network, error) {
	s.f.note("refuse")
	return &backend.Network{}, nil
}

// BeforeSockets never calls f: the fake's programs make no sockets unless they have a network.
func (s fakeConnected) BeforeSockets(func()) bool { return true }

type fakeSandbox struct {
	f      *fake
	kill   sync.Once
	close  sync.Once
	killed chan struct{}
}

func (s *fakeSandbox) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	s.f.mu.Lock()
	s.f.calls = append(s.f.calls, "start")
	s.f.mu.Unlock()
	if s.f.onStart != nil {
		if err := s.f.onStart(p); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	s.f.started = append(s.f.started, p)
	s.f.mu.Unlock()
	r := &fakeRun{sandbox: s, Process: p, Killed: s.killed, ended: make(chan struct{})}
	if p.Channels > 0 {
		r.ours, r.Frames = io.Pipe()
	}
	program := s.f.program
	if program == nil {
		program = func(*fakeRun) backend.Exit { return backend.Exit{} }
	}
	go func() {
		r.exit = program(r)
		close(r.ended)
		if r.Frames != nil {
			var err error
			if s.f.onHear != nil {
				err = s.f.onHear()
			}
			_ = r.Frames.CloseWithError(err)
		}
	}()
	return r, nil
}

func (s *fakeSandbox) Kill(context.Context) error {
	s.f.note("kill")
	s.kill.Do(func() { close(s.killed) })
	if s.f.onKill != nil {
		return s.f.onKill()
	}
	return nil
}

func (s *fakeSandbox) Clear(context.Context) error {
	s.f.note("clear")
	return nil
}

func (s *fakeSandbox) Freeze(context.Context) error { return nil }

func (s *fakeSandbox) Thaw(context.Context) error { return nil }

func (s *fakeSandbox) Dial(context.Context, int) (net.Conn, error) { return nil, net.ErrClosed }

func (s *fakeSandbox) Attach(context.Context, backend.Tree) error { return nil }

func (s *fakeSandbox) Provide(context.Context, []backend.ProgramFile) error { return nil }

func (s *fakeSandbox) Files() backend.Files {
	if s.f.onFiles != nil {
		return s.f.onFiles(fakeFiles{s.f})
	}
	return fakeFiles{s.f}
}

func (s *fakeSandbox) Isolation(context.Context) (sandboxmcp.Isolation, error) {
	s.f.mu.Lock()
	look := s.f.onWalls
	s.f.mu.Unlock()
	if look != nil {
		if err := look(); err != nil {
			return sandboxmcp.Isolation{}, err
		}
	}
	return s.f.walls(), nil
}

func (s *fakeSandbox) Usage(context.Context) (backend.Usage, error) {
	s.f.note("usage")
	return s.f.usage, nil
}

func (s *fakeSandbox) Close(context.Context) error {
	s.close.Do(func() {
		s.kill.Do(func() { close(s.killed) })
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		s.f.calls = append(s.f.calls, "close")
		s.f.closed++
	})
	return nil
}

// fakeRun is what a program of the fake sees, and what the engine holds of it.
type fakeRun struct {
	backend.Process

	Killed <-chan struct{} // closed when the sandbox is ended
	Frames *io.PipeWriter  // the program's end of the private channel
	Late   string          // what the program wrote to stdout and was not read when it ended

	sandbox *fakeSandbox
	ours    *io.PipeReader
	ended   chan struct{}
	exit    backend.Exit
}

// Code is the program's text.
func (r *fakeRun) Code() string { return string(r.Program[0].Data) }

// Frame sends a frame on the private channel, as the driver does.
func (r *fakeRun) Frame(v any) {
	body, err := json.Marshal(v)
	if err != nil || r.Frames == nil {
		return
	}
	_, _ = r.Frames.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// Hang waits until the sandbox is ended.
func (r *fakeRun) Hang() backend.Exit {
	<-r.Killed
	return backend.Exit{Signal: 9}
}

func (r *fakeRun) WriteStdin(context.Context, []byte) (int, error) { return 0, fs.ErrClosed }

func (r *fakeRun) CloseStdin(context.Context) error { return nil }

func (r *fakeRun) Resize(context.Context, backend.TerminalSize) error { return nil }

func (r *fakeRun) Signal(context.Context, int) error { return nil }

func (r *fakeRun) Interrupt(context.Context) error { return nil }

func (r *fakeRun) Channel(pair int) io.ReadWriteCloser {
	if r.ours == nil || pair != 0 {
		return nil
	}
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{r.ours, io.Discard, r.ours}
}

func (r *fakeRun) Wait(ctx context.Context) (backend.Exit, error) {
	r.sandbox.f.note("wait")
	if r.sandbox.f.onWait != nil {
		return backend.Exit{}, r.sandbox.f.onWait()
	}
	select {
	case <-r.ended:
		return r.exit, nil
	default:
	}
	select {
	case <-r.ended:
		return r.exit, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

func (r *fakeRun) Flush(context.Context) error {
	r.sandbox.f.note("flush")
	if r.sandbox.f.onRead != nil {
		return r.sandbox.f.onRead()
	}
	return nil
}

func (r *fakeRun) Drain(ctx context.Context) error {
	r.sandbox.f.note("drain")
	select {
	case <-r.ended:
		if r.Late != "" {
			_, _ = io.WriteString(r.Stdout, r.Late)
			r.Late = ""
		}
		if r.sandbox.f.onRead != nil {
			return r.sandbox.f.onRead()
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fakeFiles serves a map of names.
type fakeFiles struct{ f *fake }

var fakeTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (f fakeFiles) List(_ context.Context, name string, _ int) ([]backend.FileInfo, bool, error) {
	f.f.note("list")
	dirs := map[string]bool{}
	var list []backend.FileInfo
	for file, data := range f.f.files {
		rest := file
		if name != "." {
			var ok bool
			if rest, ok = strings.CutPrefix(file, name+"/"); !ok {
				continue
			}
		}
		if dir, _, below := strings.Cut(rest, "/"); below {
			if !dirs[dir] {
				dirs[dir] = true
				list = append(list, backend.FileInfo{Name: dir, Mode: fs.ModeDir | 0o755, Links: 2, ModTime: fakeTime})
			}
			continue
		}
		list = append(list, fakeInfo(file, data))
	}
	return list, false, nil
}

func fakeInfo(name, data string) backend.FileInfo {
	info := backend.FileInfo{Name: path.Base(name), Mode: 0o644, Size: int64(len(data)), Links: 1, ModTime: fakeTime}
	if data == "link" {
		info.Mode = fs.ModeSymlink | 0o777
	}
	return info
}

func (f fakeFiles) Open(_ context.Context, name string) (backend.File, error) {
	data, ok := f.f.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return fakeFile{bytes.NewReader([]byte(data)), fakeInfo(name, data)}, nil
}

func (f fakeFiles) Mkdir(context.Context, string) error { return nil }

func (f fakeFiles) Rename(context.Context, string, string, bool) error { return fs.ErrNotExist }

func (f fakeFiles) Put(_ context.Context, name string, data []byte, overwrite bool) error {
	if _, ok := f.f.files[name]; ok && !overwrite {
		return fs.ErrExist
	}
	f.f.files[name] = string(data)
	return nil
}

func (f fakeFiles) Stat(_ context.Context, name string) (backend.FileInfo, error) {
	data, ok := f.f.files[name]
	if !ok {
		return backend.FileInfo{}, fs.ErrNotExist
	}
	return fakeInfo(name, data), nil
}

func (f fakeFiles) Watch(ctx context.Context, name string) (backend.Watch, error) {
	return backend.NewWatch(ctx, f, name)
}

func (f fakeFiles) Remove(_ context.Context, name string) error {
	delete(f.f.files, name)
	return nil
}

type fakeFile struct {
	io.Reader
	info backend.FileInfo
}

func (f fakeFile) Close() error                                   { return nil }
func (f fakeFile) Stat(context.Context) (backend.FileInfo, error) { return f.info, nil }

var errLost = errors.New("the sandbox is lost")
