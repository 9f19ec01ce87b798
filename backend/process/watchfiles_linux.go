package process

import (
	"context"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Watch reports changes below a directory. It polls instead of using inotify. The kernel counts
// inotify instances and watches for the server's user over the whole host, and would charge the
// events to the server.
func (h heldFiles) Watch(ctx context.Context, name string) (backend.Watch, error) {
	s := h.s
	s.mu.Lock()
	full := s.watches >= backend.MaxWatches
	if !full {
		s.watches++
	}
	s.mu.Unlock()
	if full {
		return nil, &fs.PathError{Op: "watch", Path: name, Err: unix.EMFILE}
	}
	w, err := backend.NewWatch(ctx, h, name)
	if err != nil {
		s.unwatch()
		return nil, err
	}
	return &countedWatch{Watch: w, end: sync.OnceFunc(s.unwatch)}, nil
}

func (s *sandbox) unwatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches--
}

// countedWatch counts among the watches of a sandbox until it is closed.
type countedWatch struct {
	backend.Watch
	end func()
}

func (w *countedWatch) Close() error {
	defer w.end()
	return w.Watch.Close()
}
