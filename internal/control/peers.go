package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// maxPeers bounds how many sockets are looked at.
const maxPeers = 1024

// Peers finds the living servers of a state directory, oldest first. It removes
// sockets of dead ones. The error names servers that live but do not answer
// (the others are returned beside it), or says why the directory cannot be
// read; one that is not there, or no directory, has no servers.
func Peers(ctx context.Context, stateDir string) ([]*Client, error) {
	st, err := os.Stat(stateDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !st.IsDir() {
		return nil, nil
	}
	root, dir, err := openRunDir(stateDir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(maxPeers)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read socket directory: %w", err)
	}
	var (
		mu   sync.Mutex // guards peers and mute
		wg   sync.WaitGroup
		mute []error
		out  []*Client
	)
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) || strings.HasPrefix(name, ".") {
			continue
		}
		wg.Go(func() {
			c := newClient(stateDir, name)
			hello, err := c.Hello(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				c.hello = hello
				out = append(out, c)
			case errors.Is(err, syscall.ECONNREFUSED):
				_ = root.Remove(name)
			case errors.Is(err, fs.ErrNotExist):
			default:
				mute = append(mute, fmt.Errorf("server %s does not answer: %w", strings.TrimSuffix(name, suffix), err))
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b *Client) int { return a.hello.StartedAt.Compare(b.hello.StartedAt) })
	return out, errors.Join(mute...)
}
