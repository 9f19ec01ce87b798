package backendtest

import (
	"strings"
	"sync"
)

// text collects a stream. It may be read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

const mostText = 8 * mib

// Write keeps bytes up to a limit and drops the rest.
func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if left := mostText - x.b.Len(); left < len(p) {
		x.b.Write(p[:left])
		return len(p), nil
	}
	x.b.Write(p)
	return len(p), nil
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}
