//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

const (
	readyRounds  = 5               // bursts
	readyTimes   = 3               // as many requests as there are ready sandboxes, times this
	readyWithin  = 2 * time.Second // after which all are to be ready again
	readyAtOnce  = 64              // max_concurrent_jobs, so that the queue is no part of it
	readyPrepare = 4               // requests at once that make the engine have some ready
)

// drained is what came of bursts of more requests than sandboxes were ready.
type drained struct {
	Ready    int // before each burst
	Requests int // in each
	Bursts   int
	Failed   int
	Wrong    string
	P50, P99 float64 // ms
	FreshP50 float64 // of the same burst where nothing is prepared
	FreshP99 float64
	RefillMS float64 // the longest until as many were ready again
	Refilled bool    // within readyWithin, each time
}

func (b *bed) drained(ctx context.Context) (*drained, error) {
	dir, err := b.dir("drained")
	if err != nil {
		return nil, err
	}
	return ask[drained](ctx, b, "drained", "-state", dir)
}

// ask starts a child that answers with figures.
func ask[T any](ctx context.Context, b *bed, what string, args ...string) (*T, error) {
	out, err := b.child(ctx, what, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("child: %w%s", err, stderrOf(err))
	}
	into := new(T)
	if err := json.Unmarshal(out, into); err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	return into, nil
}

// drainOnce is the process in which it happens.
func drainOnce(ctx context.Context, o options, out io.Writer) error {
	atOnce := "SANDBOXMCP_MAX_CONCURRENT=" + strconv.Itoa(readyAtOnce)
	fresh, err := openEngine(ctx, o.state, o.path, os.Environ(), atOnce, nothingPrepared)
	if err != nil {
		return err
	}
	defer shut(fresh)
	r := drained{Bursts: readyRounds, Refilled: true}
	var ours, anew []float64
	for range readyRounds {
		// Each burst makes an engine have more ready, so each has an engine of its own.
		ms, err := r.drain(ctx, o, atOnce)
		if err != nil {
			return err
		}
		ours = append(ours, ms...)
		if ms, err = volley(ctx, fresh, r.Requests); err != nil {
			return err
		}
		anew = append(anew, ms...)
		pause(ctx, clearing)
	}
	r.P50, r.P99 = quantileOrZero(ours, 0.5), quantileOrZero(ours, 0.99)
	r.FreshP50, r.FreshP99 = quantileOrZero(anew, 0.5), quantileOrZero(anew, 0.99)
	return encode(out, r)
}

// drain makes an engine have some sandboxes ready and asks for more than that.
func (r *drained) drain(ctx context.Context, o options, settings ...string) ([]float64, error) {
	e, err := openEngine(ctx, o.state, o.path, os.Environ(), settings...)
	if err != nil {
		return nil, err
	}
	defer shut(e)
	for range 3 {
		if _, err = volley(ctx, e, readyPrepare); err != nil {
			return nil, err
		}
	}
	for last := -1; last != slotsReady(ctx, e) && ctx.Err() == nil; {
		last = slotsReady(ctx, e)
		pause(ctx, 300*time.Millisecond)
	}
	r.Ready = slotsReady(ctx, e)
	r.Requests = readyTimes * r.Ready
	ms, err := volley(ctx, e, r.Requests)
	if err != nil {
		r.Failed++
		r.Wrong = err.Error()
	}
	r.refilled(ctx, e, time.Now())
	return ms, nil
}

// refilled waits until as many sandboxes are ready as before.
func (r *drained) refilled(ctx context.Context, e *engine.Engine, since time.Time) {
	for slotsReady(ctx, e) < r.Ready {
		if time.Since(since) > readyWithin || ctx.Err() != nil {
			r.Refilled = false
			return
		}
		pause(ctx, 5*time.Millisecond)
	}
	r.RefillMS = max(r.RefillMS, milliseconds(time.Since(since)))
}

// slotsReady is what sandbox_stats tells.
func slotsReady(ctx context.Context, e *engine.Engine) int {
	s, _ := e.Stats(ctx)
	return s.Pool["slots_ready"]
}

// volley runs n programs at once and tells how long each took. The first error
// is returned when all have ended.
func volley(ctx context.Context, e *engine.Engine, n int) ([]float64, error) {
	ms, errs := make([]float64, n), make([]error, n)
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			var took time.Duration
			took, errs[i] = execute(ctx, e, sandboxmcp.Request{Code: "print(1)"})
			ms[i] = milliseconds(took)
		})
	}
	work.Wait()
	var right []float64
	var first error
	for i, err := range errs {
		switch {
		case err == nil:
			right = append(right, ms[i])
		case first == nil:
			first = err
		}
	}
	return right, first
}
