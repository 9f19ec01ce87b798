//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

const (
	leftEvals = 10_000 // runs in one session
	leftRuns  = 5_000  // runs without a session, each in a new sandbox
	leftEarly = 4      // the first measurement comes after 1/leftEarly of the runs, when caches are full
	leftTime  = 80 * time.Second
)

// leftover is what an engine with default settings holds after few and after many
// operations of one kind. Before each measurement it releases what it keeps ready.
type leftover struct {
	What          string
	First, Last   int
	Wanted        int // number of operations to run; Last is lower if the time was up
	Before, After held
}

// leftovers is what remains after very many operations.
type leftovers struct {
	Kinds  []leftover
	Start  held // before the engine was opened
	Closed held // after the engine was closed
}

func (b *bed) leftovers(ctx context.Context) (*leftovers, error) {
	dir, err := b.dir("leftovers")
	if err != nil {
		return nil, err
	}
	return ask[leftovers](ctx, b, "leftovers", "-state", dir)
}

// leftoversOnce runs in a child process and measures its own engine.
func leftoversOnce(ctx context.Context, o options, out io.Writer) error {
	// A separate TMPDIR, in which forgotten files are counted.
	temp := filepath.Join(o.state, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	pid := os.Getpid()
	walls := process.New(process.Config{TempDir: temp, SearchPath: o.path, ShimEnv: os.Environ()})
	look := func() held {
		_ = walls.Trim(ctx)
		debug.FreeOSMemory()
		h := settled(ctx, pid)
		entries, _ := os.ReadDir(temp)
		h.Scratch = len(entries)
		return h
	}
	r := leftovers{Start: look()}
	e, err := engine.New(ctx, engine.Config{
		StateDir: filepath.Join(o.state, "state"), Backends: []backend.Backend{walls}, Actor: "bench", Version: "bench",
	})
	if err != nil {
		return err
	}
	end := e.Close
	r.Kinds = []leftover{{What: "runs of one session", Wanted: leftEvals}, {What: "fresh sandboxes", Wanted: leftRuns}}
	for n, session := range []sandboxmcp.SessionID{"left", ""} {
		if err := r.Kinds[n].measure(ctx, e, session, look); err != nil {
			return errors.Join(err, end())
		}
	}
	if err := end(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	r.Closed = look()
	return encode(out, r)
}

// measure repeats one program until it has run often enough or the time is up.
func (k *leftover) measure(ctx context.Context, e *engine.Engine, session sandboxmcp.SessionID, look func() held) error {
	k.First = k.Wanted / leftEarly
	began := time.Now()
	for k.Last < k.Wanted && (k.Last <= k.First || time.Since(began) < leftTime) {
		if _, err := execute(ctx, e, sandboxmcp.Request{Code: "print(1)", SessionID: session}); err != nil {
			return fmt.Errorf("%s, number %d: %w", k.What, k.Last+1, err)
		}
		if k.Last++; k.Last == k.First {
			k.Before = look()
		}
	}
	k.After = look()
	return ctx.Err()
}
