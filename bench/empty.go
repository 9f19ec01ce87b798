//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// emptyLoads returns loads that open and close sandboxes without running a program: with
// ready sandboxes, and with nothing ready.
func (b *bed) emptyLoads(ctx context.Context, at []int) []load {
	out := []load{}
	for _, kind := range []struct {
		name   string
		noPool bool
	}{{rowEmpty, false}, {rowEmpty0, true}} {
		made := process.New(process.Config{TempDir: b.o.state, NoPool: kind.noPool})
		b.closers = append(b.closers, func() error { return made.Close(context.WithoutCancel(ctx)) })
		var n atomic.Int64
		out = append(out, load{name: kind.name, at: at, work: func(ctx context.Context, _ int) error {
			s, err := made.Open(ctx, emptySpec(int(n.Add(1))))
			if err != nil {
				return fmt.Errorf("make a sandbox: %w", err)
			}
			if err := s.Close(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("end a sandbox: %w", err)
			}
			return nil
		}})
	}
	return out
}

// emptySpec is close to what an engine requests by default.
func emptySpec(n int) backend.Spec {
	l := sandboxmcp.DefaultLimits()
	return backend.Spec{
		ID: "empty-" + strconv.Itoa(n), MinTier: sandboxmcp.TierL2, MemoryBytes: int64(l.MaxRAMMB) << 20, CPUCores: l.MaxCPUCores,
		MaxTasks: l.MaxTasks(), CPUTime: l.Timeout(), WorkBytes: 64 << 20, WorkInodes: 4096, TempBytes: 64 << 20,
	}
}

// emptyMemory returns the memory of one and of n empty sandboxes.
func emptyMemory(ctx context.Context, n int, temp string) (one, many footprint, err error) {
	made := process.New(process.Config{TempDir: temp, NoPool: true})
	defer func() { _ = made.Close(context.WithoutCancel(ctx)) }()
	var before footprint
	for i := range n + 1 {
		// The first sandbox stays open, because its figure includes what all sandboxes
		// share.
		if _, err := made.Open(ctx, emptySpec(i)); err != nil {
			return one, many, fmt.Errorf("make a sandbox: %w", err)
		}
		switch i {
		case 0:
			before = footprintOf(ctx)
		case 1:
			one = footprintOf(ctx).less(before)
		}
	}
	return one, footprintOf(ctx).less(before), nil
}
