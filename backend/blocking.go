package backend

import "context"

type blocking struct{}

// Blocking returns a context for a goroutine that its caller leaves behind if it is late. A program can
// hold a lock that a call for its files or streams waits for, and no signal ends that wait. A backend
// makes such a call in a goroutine of its own, so that it returns when its context ends. With the
// context of Blocking it need not: the call may return later.
func Blocking(ctx context.Context) context.Context {
	return context.WithValue(ctx, blocking{}, true)
}

// MayBlock reports whether ctx is a context of [Blocking].
func MayBlock(ctx context.Context) bool {
	return ctx.Value(blocking{}) != nil
}
