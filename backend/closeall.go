package backend

import (
	"context"
	"errors"
	"sync"
)

// CloseAll closes sandboxes at the same time, and returns when all are closed.
func CloseAll[S Sandbox](ctx context.Context, list []S) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, s := range list {
		all.Go(func() { errs[i] = s.Close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
