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
	readyTimes   = 3               // number of requests per ready sandbox
	readyWithin  = 2 * time.Second // time within which all must be ready again
	readyAtOnce  = 64              // max_concurrent_jobs, so large that no request is queued
	readyPrepare = 4               // concurrent requests that make the engine keep sandboxes ready
)

// drained is the result of bursts with more requests than ready sandboxes.
type drained struct {
	Ready    int // before each burst
	Requests int // requests in each burst
	Bursts   int
	Failed   int
	Wrong    string
	P50, P99 float64 // ms
	FreshP50 float64 // the same figure with nothing ready
	FreshP99 float64
	RefillMS float64 // longest time until as many sandboxes were ready again
	Refilled bool    // within readyWithin, each time
}

func (b *bed) drained(ctx context.Context) (*drained, error) {
	dir, err := b.dir("drained")
	if err != nil {
		return nil, err
	}
	return ask[drained](ctx, b, "drained", "-state", dir)
}

// ask runs a child process and decodes the figures that it prints.
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

// drainOnce runs in a child process and measures its own engines.
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
		// A burst makes an engine keep more sandboxes ready, so each burst has its own
		// engine.
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

// drain makes an engine keep some sandboxes ready, and then makes more requests than
// that.
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
	for last := -1; last != sandboxesReady(ctx, e) && ctx.Err() == nil; {
		last = sandboxesReady(ctx, e)
		pause(ctx, 300*time.Millisecond)
	}
	r.Ready = sandboxesReady(ctx, e)
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
	for sandboxesReady(ctx, e) < r.Ready {
		if time.Since(since) > readyWithin || ctx.Err() != nil {
			r.Refilled = false
			return
		}
		pause(ctx, 5*time.Millisecond)
	}
	r.RefillMS = max(r.RefillMS, milliseconds(time.Since(since)))
}

// sandboxesReady returns the number of ready sandboxes, as in sandbox_stats.
func sandboxesReady(ctx context.Context, e *engine.Engine) int {
	s, _ := e.Stats(ctx)
	return s.Pool["slots_ready"]
}

// volley runs n programs at the same time and returns their times. It returns the first
// error once all have ended.
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
