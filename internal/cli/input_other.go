//go:build !linux

package cli

import (
	"context"
	"os"
)

// openAny opens a file, pipe or device for reading. It returns when ctx ends, even if
// opening a pipe without a writer still blocks; a file that is opened after that is
// closed.
func openAny(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
		go func() {
			if o := <-done; o.err == nil {
				_ = o.f.Close()
			}
		}()
		return nil, ctx.Err()
	}
}
