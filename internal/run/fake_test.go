package run_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// box is a sandbox whose only process is a function. The calls of its methods are kept in
// order, except those of Isolation, which come at any time.
type box struct {
	backend.Sandbox

	program func(p *process) backend.Exit    // nil: it ends at once with exit code 0
	late    [2]string                        // output on stdout and stderr that is read after the program has ended
	frames  []any                            // what the driver reports; nil: the process has no channel
	tier    sandboxmcp.Tier                  // empty: L3
	usage   []backend.Usage                  // of each call of Usage; the last one repeats
	fail    map[string]error                 // by the name of the method; "read" fails the channel
	on      map[string]func(context.Context) // called by the method of that name
	held    <-chan struct{}                  // until it is closed, the channel has no end, also if the sandbox was killed; nil: it has

	mu     sync.Mutex
	calls  []string
	killed chan struct{}
}

// call notes a call and returns the error that the test wants.
func (b *box) call(ctx context.Context, method string) error {
	b.mu.Lock()
	b.calls = append(b.calls, method)
	b.mu.Unlock()
	if f := b.on[method]; f != nil {
		f(ctx)
	}
	return b.fail[method]
}

func (b *box) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *box) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	if err := cmp.Or(b.call(ctx, "start"), ctx.Err()); err != nil {
		return nil, err
	}
	b.killed = make(chan struct{})
	r := &process{Process: p, box: b, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		if b.program != nil {
			r.exit = b.program(r)
		}
	}()
	return r, nil
}

func (b *box) Kill(ctx context.Context) error {
	close(b.killed)
	return b.call(ctx, "kill")
}

func (b *box) Clear(ctx context.Context) error {
	close(b.killed)
	return b.call(ctx, "clear")
}

func (b *box) Isolation(context.Context) (sandboxmcp.Isolation, error) {
	return sandboxmcp.Isolation{Tier: cmp.Or(b.tier, sandboxmcp.TierL3), Walls: []string{"seccomp"}}, b.fail["isolation"]
}

func (b *box) Usage(ctx context.Context) (backend.Usage, error) {
	err := b.call(ctx, "usage")
	if len(b.usage) == 0 {
		return backend.Usage{}, err
	}
	u := b.usage[0]
	if len(b.usage) > 1 {
		b.usage = b.usage[1:]
	}
	return u, err
}

// process is what the program of a box sees, and what the run holds of it.
type process struct {
	backend.Running
	backend.Process

	box   *box
	ended chan struct{}
	exit  backend.Exit
}

// hang waits until the sandbox is killed or cleared.
func (p *process) hang() backend.Exit {
	<-p.box.killed
	return backend.Exit{Signal: 9}
}

func (p *process) Wait(ctx context.Context) (backend.Exit, error) {
	if err := p.box.call(ctx, "wait"); err != nil {
		return backend.Exit{}, err
	}
	select {
	case <-p.ended:
		return p.exit, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

func (p *process) Drain(ctx context.Context) error {
	err := p.box.call(ctx, "drain")
	<-p.ended
	_, _ = io.WriteString(p.Stdout, p.box.late[0])
	_, _ = io.WriteString(p.Stderr, p.box.late[1])
	return err
}

func (p *process) Channel(int) io.ReadWriteCloser {
	if p.box.frames == nil {
		return nil
	}
	var all bytes.Buffer
	for _, f := range p.box.frames {
		body, _ := json.Marshal(f)
		all.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	return channel{Reader: &all, end: cmp.Or(p.box.fail["read"], io.EOF), box: p.box}
}

// channel ends with an error, when the sandbox does.
type channel struct {
	io.Reader
	io.WriteCloser

	end error
	box *box
}

func (c channel) Read(p []byte) (int, error) {
	if n, err := c.Reader.Read(p); err == nil {
		return n, nil
	}
	<-c.box.killed
	if c.box.held != nil {
		<-c.box.held
	}
	return 0, c.end
}

// config is that of a run with room for everything.
func config() run.Config {
	return run.Config{
		Language: sandboxmcp.Shell, Limits: sandboxmcp.Limits{TimeoutSeconds: 60, MaxProcesses: 4, MaxOutputBytes: 1000}, Now: time.Now,
		Mask: func(v sandboxmcp.RichResult) sandboxmcp.RichResult { return v },
	}
}

// execute runs the program of a box and takes the steps that a caller has to take.
func execute(ctx context.Context, t *testing.T, b *box, cfg run.Config, stays bool) (*run.Run, run.Outcome, error) {
	t.Helper()
	r, during := run.Begin(ctx, cfg)
	o, err := r.Program(ctx, during, run.Program{Sandbox: b, Stays: stays})
	r.Stop()
	r.End()
	t.Cleanup(r.Close)
	return r, o, err
}

// result is execute of a program that has to come to a result.
func result(ctx context.Context, t *testing.T, b *box, cfg run.Config) sandboxmcp.Result {
	t.Helper()
	r, o, err := execute(ctx, t, b, cfg, false)
	if err != nil {
		t.Fatalf("Program: got %v, want an outcome", err)
	}
	res := r.Result(&o)
	r.Close()
	r.Flush(ctx)
	return res
}
