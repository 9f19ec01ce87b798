package api

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

// maxPeers bounds the sockets that are read from the directory.
const maxPeers = 1024

// Peers finds the running servers of a state directory, oldest first, and removes sockets
// of dead ones. The error names servers that run but do not answer, or that have another
// version of the protocol; the others are returned with it. It also reports a directory
// that cannot be read. A directory that does not exist has no servers.
func Peers(ctx context.Context, stateDir string) ([]*Client, error) {
	ids, err := IDs(stateDir)
	if err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex // guards out and mute
		wg   sync.WaitGroup
		mute []error
		out  []*Client
	)
	for _, id := range ids {
		wg.Go(func() {
			c, err := Find(ctx, stateDir, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out = append(out, c)
			case !errors.Is(err, fs.ErrNotExist):
				mute = append(mute, err)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b *Client) int { return a.hello.StartedAt.Compare(b.hello.StartedAt) })
	return out, errors.Join(mute...)
}

// IDs lists the ids of all sockets in a state directory, of running and dead servers, in
// no order. A directory that does not exist has none.
func IDs(stateDir string) ([]string, error) {
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
	names, err := dir.Readdirnames(2 * maxPeers) // each has two files
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read socket directory: %w", err)
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, suffix); ok && !strings.HasPrefix(name, ".") {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Find connects to the server with that id. It fails with fs.ErrNotExist if the server is
// gone, and removes the socket if it has died. It also fails if the server does not
// answer within five seconds or has another version of the protocol.
func Find(ctx context.Context, stateDir, id string) (*Client, error) {
	return meet(ctx, newClient(stateDir, id+suffix), id)
}

// First returns a running server of this process's very user that is satisfies, the first that
// answers. If there is none, it returns nil when all have answered or ctx ends.
func First(ctx context.Context, stateDir string, is func(Hello) bool) *Client {
	ids, err := IDs(stateDir)
	if err != nil {
		return nil
	}
	met := make(chan *Client, len(ids))
	for _, id := range ids {
		go func() {
			c := newClient(stateDir, id+suffix)
			c.strict = true
			c, err := meet(ctx, c, id)
			if err != nil || !is(c.hello) {
				c = nil
			}
			met <- c
		}()
	}
	for range ids {
		if c := <-met; c != nil {
			return c
		}
	}
	return nil
}

// meet asks a server to identify itself. See [Find].
func meet(ctx context.Context, c *Client, id string) (*Client, error) {
	hello, err := c.Hello(ctx)
	switch {
	case err == nil && hello.Protocol == Protocol:
		c.hello = hello
		return c, nil
	case err == nil:
		return nil, fmt.Errorf("server %s speaks version %d of the control protocol and this program version %d: use the same release of sandboxmcp on both sides", id, hello.Protocol, Protocol)
	case errors.Is(err, syscall.ECONNREFUSED):
		c.forget()
		return nil, fmt.Errorf("server %s has died: %w", id, fs.ErrNotExist)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("server %s is gone: %w", id, fs.ErrNotExist)
	}
	return nil, fmt.Errorf("server %s does not answer: %w", id, err)
}

// forget removes the files of a server that has died.
func (c *Client) forget() {
	root, dir, err := openRunDir(c.stateDir, false)
	if err != nil {
		return
	}
	_ = root.Remove(c.name)
	_ = root.Remove(strings.TrimSuffix(c.name, suffix) + proofSuffix)
	_ = dir.Close()
	_ = root.Close()
}
