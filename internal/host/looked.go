package host

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// A thread can wait in the kernel for ever: for a file system of a user of the machine whose program does not answer, or for one whose server is gone. Nothing ends
// such a wait. So the server looks at the files that a call names on another thread, and the call ends with its time.

// mostLooks is how many calls may look at files at a time. A look that does not end keeps its place.
const mostLooks = 32

// timeToLook is the time for a call that has none of its own.
const timeToLook = time.Minute

// looks has an element for each look that goes on.
var looks = make(chan struct{}, mostLooks)

// looked calls f on a thread of its own, see untraced, and returns its result. If ctx ends or the limit passes first, looked fails, and f goes
// on alone. So f must not change anything that the caller uses after an error.
func looked[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1)
	select {
	case looks <- struct{}{}:
		go func() {
			defer func() { <-looks }()
			var r result
			r.err = untraced(func() (err error) {
				r.value, err = f(ctx)
				return err
			})
			done <- r
		}()
	case <-ctx.Done():
		return *new(T), late(ctx)
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), late(ctx)
	}
}

// caught calls f and returns its error, also for a panic. Nothing else would catch a panic of a thread that belongs to no call, and the server would end.
func caught(f func() error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic: %v\n%s", why, debug.Stack())
		}
	}()
	return f()
}
