//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
	"github.com/sandboxmcp/sandboxmcp/internal/tuning"
)

// first holds the time of the first request of a process.
type first struct {
	OpenMS    float64
	ExecuteMS float64
}

// firstRequest runs in a child process and measures its first request.
func firstRequest(ctx context.Context, o options, out io.Writer) error {
	i := interpreter{Lang: sandboxmcp.Language(o.lang)}
	tuning.Command() // as the run command does
	req := sandboxmcp.Request{Language: i.Lang, Code: i.hello()}
	began := time.Now()
	with := engineOptions(o.state, o.path, os.Environ())
	with.First = &req
	e, err := openWith(ctx, with)
	opened := time.Since(began)
	if err != nil {
		return err
	}
	defer shut(e)
	took, err := execute(ctx, e, req)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(first{OpenMS: milliseconds(opened), ExecuteMS: milliseconds(took)}); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// timedServe is the serve command with a clock around the engine. It writes the engine's time for
// the last request to the file at descriptor 3.
func timedServe(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	s, e, err := clockedServer(ctx, o, false)
	if err != nil {
		return err
	}
	defer shut(e)
	if err := s.ServeStdio(ctx, in, out); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// clockedServer returns a server with a clock around its engine, which the caller shuts.
func clockedServer(ctx context.Context, o options, overHTTP bool) (*server.Server, *engine.Engine, error) {
	tuning.Restart(os.Args, os.Environ()) // as the serve command does
	tuning.Server()
	times := os.NewFile(3, "times")
	if times == nil {
		return nil, nil, errors.New("descriptor 3 is not open")
	}
	e, err := openEngine(ctx, o.state, o.path, os.Environ())
	if err != nil {
		return nil, nil, err
	}
	return server.New(server.Config{
		Engine: clocked{e, times}, Version: "bench", Logger: slog.New(slog.DiscardHandler), HTTP: overHTTP,
		Identity: sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{e.Namespace()}},
	}), e, nil
}

// clocked is an engine that measures its requests.
type clocked struct {
	*engine.Engine

	times *os.File
}

// Execute runs a request and writes its time to c.times. That is a file and no pipe: a write to it
// wakes no other process and never waits.
func (c clocked) Execute(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	began := time.Now()
	res, err := c.Engine.Execute(ctx, who, req)
	took := time.Since(began)
	_, _ = c.times.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(took)), 0)
	return res, err
}

// timedClient is a client of a timedServe.
type timedClient struct {
	*client
	clock
}

// clock is the file into which a child writes the engine's times.
type clock struct{ file *os.File }

// newClock makes the file in a directory.
func newClock(dir string) (clock, error) {
	f, err := os.CreateTemp(dir, "clock")
	if err != nil {
		return clock{}, fmt.Errorf("make clock: %w", err)
	}
	return clock{f}, nil
}

// inside returns the engine's time for the last request.
func (c clock) inside() (time.Duration, error) {
	var ns [8]byte
	if _, err := c.file.ReadAt(ns[:], 0); err != nil {
		return 0, fmt.Errorf("read the engine's time: %w", err)
	}
	return time.Duration(binary.LittleEndian.Uint64(ns[:])), nil
}

func (t *timedClient) close() error {
	err := t.client.close()
	_ = t.file.Close()
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
	times, err := newClock(dir)
	if err != nil {
		return nil, err
	}
	c, err := dialWith(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := b.child(ctx, "serve", "-state", dir)
		cmd.ExtraFiles = []*os.File{times.file}
		return cmd
	})
	if err != nil {
		_ = times.file.Close()
		return nil, err
	}
	return &timedClient{c, times}, nil
}
