//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// bed holds the engines, servers and directories that a suite uses.
type bed struct {
	o            options
	env          []string // environment of the product
	self         string
	interpreters []interpreter
	isolation    sandboxmcp.Isolation
	engines      map[string]*engine.Engine // engines that keep nothing ready, by the PATH on which they search interpreters
	pooled       map[string]*engine.Engine // engines with default settings, by the interpreter's label, so that languages do not share ready sandboxes
	null         *os.File                  // stays open until this process ends
	server       *client                   // the product's server; nil: it did not start
	web          *httpClient               // the product's server over HTTP; nil: it did not start
	judge        *judge
	science      science
	meter        meter
	closeDocker  func() error // nil: docker does not run
	closers      []func() error
	made         int
}

func newBed(ctx context.Context, o options) (*bed, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	b := &bed{o: o, self: self, env: set(withoutOurs(os.Environ()), "PATH", o.path), meter: newMeter(o.group), engines: map[string]*engine.Engine{}, pooled: map[string]*engine.Engine{}}
	if b.null, err = os.Open(os.DevNull); err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	b.interpreters = findInterpreters(ctx, o.path, b.env)
	for _, i := range b.interpreters {
		if b.pooled[i.Label], err = b.open(ctx, i.Search); err != nil {
			return nil, errors.Join(err, b.end())
		}
		if b.engines[i.Search] != nil {
			continue
		}
		e, err := b.open(ctx, i.Search, nothingPrepared)
		if err != nil {
			return nil, errors.Join(err, b.end())
		}
		b.engines[i.Search] = e
		if b.isolation.Tier == "" {
			res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{Language: i.Lang, Code: i.hello()})
			if err != nil {
				return nil, errors.Join(fmt.Errorf("first run: %w", err), b.end())
			}
			if res.Isolation != nil {
				b.isolation = *res.Isolation
			}
		}
	}
	if len(b.interpreters) == 0 {
		return nil, errors.Join(errors.New("no interpreter was found on the PATH"), b.end())
	}
	b.science = b.openScience(ctx)
	if b.science.skip == "" {
		b.judge = b.startJudge(ctx, b.science.packages(), b.science.env())
	} else {
		b.judge = b.startJudge(ctx, "", nil)
	}
	return b, nil
}

// open opens an engine with a state directory of its own. end closes it.
func (b *bed) open(ctx context.Context, search string, settings ...string) (*engine.Engine, error) {
	dir, err := b.dir("state")
	if err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, dir, search, b.env, settings...)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, e.Close)
	return e, nil
}

// end closes everything in reverse order.
func (b *bed) end() error {
	errs := []error{b.endDocker()}
	for len(b.closers) > 0 {
		last := len(b.closers) - 1
		errs = append(errs, b.closers[last]())
		b.closers = b.closers[:last]
	}
	return errors.Join(errs...)
}

// endDocker stops dockerd, if it runs.
func (b *bed) endDocker() error {
	end := b.closeDocker
	if b.closeDocker = nil; end == nil {
		return nil
	}
	return end()
}

func (b *bed) close() {
	if err := b.end(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: close:", err)
	}
}

// nothingPrepared is the setting of an engine that keeps nothing ready.
const nothingPrepared = "SANDBOXMCP_SANDBOX_POOL=false"

// openEngine opens an engine with default settings, except the given ones.
func openEngine(ctx context.Context, state, search string, env []string, settings ...string) (*engine.Engine, error) {
	return openWith(ctx, engineOptions(state, search, env, settings...))
}

func engineOptions(state, search string, env []string, settings ...string) engine.Options {
	env = set(set(withoutOurs(env), "SANDBOXMCP_STATE_DIR", state), "PATH", search)
	env = append(env, settings...)
	return engine.Options{Settings: engine.Settings{Env: env}, Env: env, Actor: "bench", Version: "bench"}
}

func openWith(ctx context.Context, o engine.Options) (*engine.Engine, error) {
	e, err := engine.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	return e, nil
}

// execute runs a program and checks its output.
func execute(ctx context.Context, e *engine.Engine, req sandboxmcp.Request) (time.Duration, error) {
	began := time.Now()
	res, err := e.Execute(ctx, sandboxmcp.Caller{}, req)
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("execute: %w", err)
	}
	if res.Stdout != "1\n" || !res.Success {
		return 0, fmt.Errorf("execute: status %s, stdout %.80q, stderr %.200q", res.Status, res.Stdout, res.Stderr)
	}
	return took, nil
}

// shut closes c. Its error does not matter, because the process ends soon.
func shut(c io.Closer) { _ = c.Close() }

// program is a command to start.
type program struct {
	dir  string // empty: /
	env  []string
	argv []string
}

func (p program) cwd() string {
	if p.dir == "" {
		return "/"
	}
	return p.dir
}

// plainEnv is the environment of bare programs and bwrap. It has none of the user's
// variables, because some cost an interpreter more time than a sandbox does.
func plainEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}
}

// command runs a program and checks that its last line is 1. It returns the time from
// before the start until the program has ended and its output is read.
func (b *bed) command(ctx context.Context, p program) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = r.Close() }()
	began := time.Now()
	started, err := os.StartProcess(p.argv[0], p.argv, &os.ProcAttr{Dir: p.cwd(), Env: p.env, Files: []*os.File{b.null, w, b.null}})
	_ = w.Close()
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	t := time.AfterFunc(time.Minute, func() { _ = started.Kill() })
	defer t.Stop()
	out, readErr := io.ReadAll(r)
	state, err := started.Wait()
	took := time.Since(began)
	switch {
	case err != nil:
		return 0, fmt.Errorf("wait: %w", err)
	case readErr != nil:
		return 0, fmt.Errorf("read: %w", readErr)
	case !state.Success():
		return 0, fmt.Errorf("%s: %s%s", filepath.Base(p.argv[0]), state, p.why(ctx))
	case !bytes.Equal(lastLine(out), []byte("1")):
		return 0, fmt.Errorf("%s printed %.80q, not 1", filepath.Base(p.argv[0]), out)
	}
	return took, nil
}

func lastLine(out []byte) []byte {
	out = bytes.TrimRight(out, "\n")
	return out[bytes.LastIndexByte(out, '\n')+1:]
}
