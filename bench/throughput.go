//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// load is an operation that several workers repeat.
type load struct {
	name string
	at   []int  // numbers of workers
	skip string // why it cannot be measured here
	work func(ctx context.Context, worker int) error

	// measure is for a load in a process of its own, which has no work here.
	measure func(workers int, length time.Duration, into *cell) error
}

// cell is the result of a load with one number of workers.
type cell struct {
	Name    string
	Workers int
	Reason  string // why there is no measurement; empty: there is one
	Done    int
	Seconds float64
	CPU     float64 // CPU seconds of all processes, including the cleanup
	P50     float64 // ms per operation
	P99     float64

	ms []float64
}

// add adds the operations of a piece.
func (c *cell) add(seconds float64, ms []float64) {
	c.Seconds += seconds
	c.ms = append(c.ms, ms...)
	c.Done = len(c.ms)
}

// rate is operations per second.
func (c cell) rate() float64 { return float64(c.Done) / c.Seconds }

// cost is CPU time per operation in ms.
func (c cell) cost() float64 { return 1000 * c.CPU / float64(c.Done) }

func (c cell) has() bool { return c.Done > 0 && c.Seconds > 0 }

const (
	pieces    = 3 // number of parts in which a cell is measured, spread over the whole run
	rowEmpty  = "an empty sandbox made and ended"
	rowEmpty0 = rowEmpty + ", nothing kept"
)

// throughput measures all cells in several parts, in a new random order each time.
func (b *bed) throughput(ctx context.Context) []cell {
	type pair struct {
		load load
		cell *cell
	}
	var pairs []pair
	for _, l := range b.loads(ctx) {
		for _, n := range l.at {
			pairs = append(pairs, pair{l, &cell{Name: l.name, Workers: n, Reason: l.skip}})
		}
	}
	for _, p := range pairs { // warm-up
		if p.cell.Reason == "" && ctx.Err() == nil {
			if err := together(ctx, p.load, p.cell.Workers, 50*time.Millisecond, &cell{}); err != nil {
				p.cell.Reason = err.Error()
			}
		}
	}
	for range pieces {
		for _, i := range shuffled(len(pairs)) {
			p := pairs[i]
			if p.cell.Reason != "" || ctx.Err() != nil {
				continue
			}
			before, err := b.meter.rest(ctx)
			if err == nil {
				err = together(ctx, p.load, p.cell.Workers, b.o.cell/pieces, p.cell)
			}
			pause(ctx, clearing)
			after, err2 := b.meter.read()
			if err == nil {
				err = err2
			}
			if err != nil {
				p.cell.Reason = err.Error()
				continue
			}
			p.cell.CPU += (after - before).Seconds()
		}
	}
	out := make([]cell, 0, len(pairs))
	for _, p := range pairs {
		p.cell.P50, p.cell.P99 = quantileOrZero(p.cell.ms, 0.5), quantileOrZero(p.cell.ms, 0.99)
		out = append(out, *p.cell)
	}
	return out
}

// quantileOrZero is quantile with 0 in place of NaN, which JSON cannot represent.
func quantileOrZero(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return quantile(values, q)
}

// together runs a load with several workers for a while and adds the results to a cell.
// Operations that were started are completed. The first failure ends the measurement and is
// returned.
func together(ctx context.Context, l load, workers int, length time.Duration, into *cell) error {
	if l.measure != nil {
		return errors.Join(l.measure(workers, length, into), ctx.Err())
	}
	var work sync.WaitGroup
	var failed atomic.Bool
	took := make([][]float64, workers)
	errs := make([]error, workers)
	began := time.Now()
	for w := range workers {
		work.Go(func() {
			for ctx.Err() == nil && !failed.Load() && (len(took[w]) == 0 || time.Since(began) < length) {
				at := time.Now()
				if err := l.work(ctx, w); err != nil {
					errs[w] = err
					failed.Store(true)
					return
				}
				took[w] = append(took[w], milliseconds(time.Since(at)))
			}
		})
	}
	work.Wait()
	into.add(time.Since(began).Seconds(), slices.Concat(took...))
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("with %d at once: %w", workers, err)
		}
	}
	return ctx.Err()
}

// loads returns the loads to measure.
func (b *bed) loads(ctx context.Context) []load {
	if len(b.interpreters) == 0 || b.interpreters[0].Lang != sandboxmcp.Python {
		return nil
	}
	python, all, many := b.interpreters[0], []int{1, 2, 8}, []int{1, 2, 8, 32}
	command := func(name string, at []int, skip string, p program) load {
		return load{name: name, at: at, skip: skip, work: func(ctx context.Context, _ int) error {
			_, err := b.command(ctx, p)
			return err
		}}
	}
	with := func(name string, at []int, e *engine.Engine, req sandboxmcp.Request) load {
		return load{name: name, at: at, work: func(ctx context.Context, _ int) error {
			_, err := execute(ctx, e, req)
			return err
		}}
	}
	out := []load{
		command(python.bare(), many, "", program{env: plainEnv(), argv: python.argv()}),
		b.apart(ctx, inProcess(python), kindFresh, python, many),
		b.apart(ctx, inPooled(python), kindReady, python, many),
		b.loopLoad(python, all),
		b.apart(ctx, inSession(python), kindSession, python, all),
	}
	out = append(out, b.httpLoads(python, []int{1, 8})...)
	judge := func(name, code string, at []int) load {
		l := load{name: name, at: at, skip: b.judge.skip}
		l.work = func(ctx context.Context, _ int) error { _, err := b.judge.execute(ctx, python, code); return err }
		return l
	}
	bwrap, skip := bwrapProgram(python)
	out = append(out, judge(inJudge(python), python.hello(), all), command(inBwrap(python), many, skip, bwrap))
	out = append(out, b.apart(ctx, rowEmpty, kindEmpty, python, all), b.apart(ctx, rowEmpty0, kindEmpty0, python, all))
	if s := b.science; s.skip == "" {
		two := []int{2}
		req := sandboxmcp.Request{Language: python.Lang, Code: pandasCode}
		out = append(out, command(rowPandas, two, "", s.bare(python)),
			with(rowPandasFresh, two, s.fresh, req), with(rowPandasPooled, two, s.pooled, req),
			judge(rowPandasJudge, pandasCode, two))
	}
	return out
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }
