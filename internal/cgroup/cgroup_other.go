//go:build !linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Tree is not available on this system.
type Tree struct{}

// Group is not available on this system.
type Group struct{}

// Open fails: only Linux has cgroups.
func Open(Config) (*Tree, error) {
	return nil, fmt.Errorf("control groups: %w on this system", errors.ErrUnsupported)
}

// Version returns 0.
func (*Tree) Version() int { return 0 }

// Weak returns nil.
func (*Tree) Weak() []string { return nil }

// New fails.
func (*Tree) New(string, Limits) (*Group, error) { return nil, errors.ErrUnsupported }

// ChownForEntry fails.
func (*Tree) ChownForEntry(int, int) error { return errors.ErrUnsupported }

// Sweep fails.
func (*Tree) Sweep() (int, error) { return 0, errors.ErrUnsupported }

// Spare returns nil.
func (*Tree) Spare() *Group { return nil }

// Close does nothing.
func (*Tree) Close() error { return nil }

// Entry fails.
func (*Group) Entry() (Entry, error) { return Entry{}, errors.ErrUnsupported }

// Set fails.
func (*Group) Set(Limits) error { return errors.ErrUnsupported }

// Has returns false.
func (*Group) Has(string) bool { return false }

// Clear fails.
func (*Group) Clear() error { return errors.ErrUnsupported }

// Name returns "".
func (*Group) Name() string { return "" }

// Walls returns nil.
func (*Group) Walls() []string { return nil }

// Weak returns nil.
func (*Group) Weak() []string { return nil }

// Usage returns zero.
func (*Group) Usage() Usage { return Usage{} }

// CPU is not known.
func (*Group) CPU() (time.Duration, bool) { return 0, false }

// Freezes returns false.
func (*Tree) Freezes() bool { return false }

// Freeze fails.
func (*Group) Freeze(context.Context, int) error { return errors.ErrUnsupported }

// Thaw does nothing.
func (*Group) Thaw(context.Context) error { return nil }

// OOMKills is zero.
func (*Group) OOMKills() int { return 0 }

// Kill fails.
func (*Group) Kill() error { return errors.ErrUnsupported }

// Remove does nothing.
func (*Group) Remove() error { return nil }
