//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/tuning"
)

// The kinds of loads that have a process of their own. A server has one engine. The engines, servers and peers of the other
// rows would slow it down if they were in the same process.
const (
	kindFresh   = "fresh"
	kindReady   = "ready"
	kindSession = "session"
	kindEmpty   = "empty"
	kindEmpty0  = "empty0"
)

// piece asks a process for one part of a cell's measurement.
type piece struct {
	Workers int
	Length  time.Duration
}

// measuredPiece answers it.
type measuredPiece struct {
	Seconds float64
	MS      []float64
	Failed  string // empty: it did not fail
}

// loadsApart measures, in a child process, the pieces that it is asked for on its standard input.
func loadsApart(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	tuning.Restart(os.Args, os.Environ()) // as the serve command does
	tuning.Server()
	l := load{}
	var end func()
	var err error
	if l.work, end, err = o.workOf(ctx); err != nil {
		return err
	}
	defer end()
	asked, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var p piece
		if err := asked.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read what to measure: %w", err)
		}
		var c cell
		answer := measuredPiece{}
		if err := together(ctx, l, p.Workers, p.Length, &c); err != nil {
			answer.Failed = err.Error()
		}
		answer.Seconds, answer.MS = c.Seconds, c.ms
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
}

// workOf returns the operation of a load of a kind, and what ends it.
func (o *options) workOf(ctx context.Context) (work func(context.Context, int) error, end func(), err error) {
	if o.kind == kindEmpty || o.kind == kindEmpty0 {
		work, end = emptyWork(ctx, o.state, o.kind == kindEmpty0)
		return work, end, nil
	}
	i := interpreter{Lang: sandboxmcp.Language(o.lang)}
	settings := []string{}
	if o.kind == kindFresh {
		settings = append(settings, nothingPrepared)
	}
	e, err := openEngine(ctx, o.state, o.path, os.Environ(), settings...)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, worker int) error {
		req := sandboxmcp.Request{Language: i.Lang, Code: i.hello()}
		if o.kind == kindSession {
			req.SessionID = sandboxmcp.SessionID("load-" + strconv.Itoa(worker))
		}
		_, err := execute(ctx, e, req)
		return err
	}, func() { shut(e) }, nil
}

// apart returns a load of a kind in a process of its own. b ends the process.
func (b *bed) apart(ctx context.Context, name, kind string, i interpreter, at []int) load {
	out := load{name: name, at: at}
	dir, err := b.dir("load")
	if err != nil {
		out.skip = err.Error()
		return out
	}
	cmd := b.child(context.WithoutCancel(ctx), "load", "-state", dir, "-kind", kind, "-lang", string(i.Lang))
	var said strings.Builder
	cmd.Stderr = &said
	to, err := cmd.StdinPipe()
	if err != nil {
		out.skip = err.Error()
		return out
	}
	from, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		out.skip = errors.Join(err, to.Close()).Error()
		return out
	}
	b.closers = append(b.closers, func() error { return errors.Join(to.Close(), cmd.Wait()) })
	asked, answers := json.NewEncoder(to), json.NewDecoder(from)
	out.measure = func(workers int, length time.Duration, into *cell) error {
		var p measuredPiece
		if err := errors.Join(asked.Encode(piece{workers, length}), answers.Decode(&p)); err != nil {
			return fmt.Errorf("%w: %s", err, said.String())
		}
		into.add(p.Seconds, p.MS)
		if p.Failed != "" {
			return errors.New(p.Failed)
		}
		return nil
	}
	return out
}
