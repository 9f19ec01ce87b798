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

// emptyWork returns an operation that opens and closes a sandbox without running a program, with ready
// sandboxes or with nothing ready, and what ends its backend.
func emptyWork(ctx context.Context, temp string, noPool bool) (work func(context.Context, int) error, end func()) {
	made := process.New(process.Config{TempDir: temp, NoPool: noPool})
	var n atomic.Int64
	return func(ctx context.Context, _ int) error {
		s, err := made.Open(ctx, emptySpec(int(n.Add(1))))
		if err != nil {
			return fmt.Errorf("make a sandbox: %w", err)
		}
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("end a sandbox: %w", err)
		}
		return nil
	}, func() { _ = made.Close(context.WithoutCancel(ctx)) }
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
