package host

import (
	"io"
	"sync"
)

// kept has the bytes that a call reads from a file, or writes to one. A look that waits for ever must not keep them once the call has ended, so it gets this.
type kept struct {
	mu    sync.Mutex
	bytes []byte
	taken bool
}

// take returns the bytes, and ends Write and Read.
func (k *kept) take() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.bytes
	k.bytes, k.taken = nil, true
	return all
}

// Write adds bytes.
func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken {
		return 0, io.ErrClosedPipe
	}
	k.bytes = append(k.bytes, b...)
	return len(b), nil
}

// Read removes bytes from the begin.
func (k *kept) Read(b []byte) (n int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.taken:
		return 0, io.ErrClosedPipe
	case len(k.bytes) == 0:
		return 0, io.EOF
	}
	n = copy(b, k.bytes)
	k.bytes = k.bytes[n:]
	return n, nil
}
