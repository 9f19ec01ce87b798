//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// first holds the time of the first request of a process.
type first struct {
	OpenMS    float64
	ExecuteMS float64
}

// firstRequest runs in a child process and measures its first request.
func firstRequest(ctx context.Context, o options, out io.Writer) error {
	i := interpreter{Lang: sandboxmcp.Language(o.lang)}
	began := time.Now()
	e, err := openEngine(ctx, o.state, o.path, os.Environ())
	opened := time.Since(began)
	if err != nil {
		return err
	}
	defer shut(e)
	took, err := execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: i.hello()})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(first{OpenMS: milliseconds(opened), ExecuteMS: milliseconds(took)}); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// timedServe is the serve command with a clock around the engine. It writes the engine's
// time for each request, in ns, as a line to descriptor 3.
func timedServe(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	// The same as in the serve command.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(256 << 20)
	e, err := openEngine(ctx, o.state, o.path, os.Environ())
	if err != nil {
		return err
	}
	defer shut(e)
	times := os.NewFile(3, "times")
	if times == nil {
		return fmt.Errorf("descriptor 3 is not open")
	}
	s := server.New(server.Config{Engine: clocked{e, times}, Version: "bench", Logger: slog.New(slog.DiscardHandler), Identity: sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{e.Namespace()}}})
	if err := s.ServeStdio(ctx, in, out); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// clocked is an engine that measures its requests.
type clocked struct {
	*engine.Engine

	times io.Writer
}

// Execute runs a request and writes its time to c.times.
func (c clocked) Execute(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	began := time.Now()
	res, err := c.Engine.Execute(ctx, who, req)
	took := time.Since(began)
	// In another goroutine, so that the write does not delay the response.
	go func() { _, _ = io.WriteString(c.times, strconv.FormatInt(int64(took), 10)+"\n") }()
	return res, err
}

// timedClient is a client of a timedServe.
type timedClient struct {
	*client

	times *bufio.Reader
	r     *os.File
}

// inside returns the engine's time for the last request.
func (t *timedClient) inside() (time.Duration, error) {
	line, err := t.times.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("read the engine's time: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the engine's time: %w", err)
	}
	return time.Duration(ns), nil
}

func (t *timedClient) close() error {
	err := t.client.close()
	_ = t.r.Close()
	return err
}

// child returns a command that runs this program for one measurement.
func (b *bed) child(ctx context.Context, what string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.self, append([]string{"-child", what, "-path", b.o.path}, args...)...)
	cmd.Env, cmd.Dir = b.env, "/"
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (b *bed) timed(ctx context.Context) (*timedClient, error) {
	dir, err := b.dir("timed")
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	c, err := dialWith(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := b.child(ctx, "serve", "-state", dir)
		cmd.ExtraFiles = []*os.File{w}
		return cmd
	})
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return &timedClient{client: c, times: bufio.NewReader(r), r: r}, nil
}
