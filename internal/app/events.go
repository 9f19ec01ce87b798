package app

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

const (
	followLook  = 200 * time.Millisecond // interval of searches for new servers
	followAgain = 2 * time.Second        // delay before a server that did not answer is tried again
)

// followers watch the servers of a state directory, each in a goroutine.
type followers struct {
	app  *App
	cfg  *config.Config
	who  sandboxmcp.Caller
	show func(sandboxmcp.Event) error
	end  context.CancelCauseFunc

	since time.Time // earlier events are not shown

	mu   sync.Mutex
	have map[string]time.Time // servers that are followed, and servers that failed with the time before which they are not tried again
	said map[string]bool      // servers that were reported as not answering

	out  sync.Mutex        // held while an event is shown; guards seen
	seen map[string]uint64 // number of the last event of each event source

	work sync.WaitGroup
}

// Follow passes new events of all servers to show, one at a time, until ctx ends. If show
// fails, Follow returns its error. From each server that it finds, it also reads the recent
// events that the server keeps. So it misses no event of a server that starts later or was
// unreachable for a while, and it shows no event twice.
func (a *App) Follow(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller, show func(sandboxmcp.Event) error) error {
	own, end := context.WithCancelCause(ctx)
	defer end(nil)
	f := &followers{app: a, cfg: cfg, who: who, show: show, end: end, since: time.Now(), have: map[string]time.Time{}, said: map[string]bool{}, seen: map[string]uint64{}}
	defer f.work.Wait()
	defer end(nil)
	tick := time.NewTicker(followLook)
	defer tick.Stop()
	for {
		ids, err := api.IDs(cfg.StateDir)
		if err != nil {
			return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the servers of %s cannot be found", cfg.StateDir).WithCause(err)
		}
		f.look(own, ids)
		select {
		case <-tick.C:
		case <-own.Done():
			if ctx.Err() == nil {
				return context.Cause(own)
			}
			return nil // ctx has ended
		}
	}
}

// look follows the servers that are not followed yet.
func (f *followers) look(ctx context.Context, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(f.have, func(_ string, until time.Time) bool { return !until.IsZero() && now.After(until) })
	for _, id := range ids {
		if _, known := f.have[id]; !known {
			f.have[id] = time.Time{}
			f.work.Go(func() { f.watch(ctx, id) })
		}
	}
}

// watch shows the events of a server until it ends.
func (f *followers) watch(ctx context.Context, id string) {
	c, err := api.Find(ctx, f.cfg.StateDir, id)
	var events <-chan sandboxmcp.Event
	if err == nil {
		events, err = c.Follow(ctx, f.who, true)
	}
	for e := range events { // nil if the server was not found
		if err = f.tell(e); err != nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have[id] = time.Now().Add(followAgain)
	if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) && !f.said[id] {
		f.said[id] = true
		f.app.Say(err.Error())
	}
}

// tell shows an event unless it is old or was shown before.
func (f *followers) tell(e sandboxmcp.Event) error {
	f.out.Lock()
	defer f.out.Unlock()
	if mark, number, ok := strings.Cut(e.ID, "-"); ok {
		n, err := strconv.ParseUint(number, 10, 64)
		if err == nil && n <= f.seen[mark] {
			return nil
		}
		f.seen[mark] = n
	}
	if e.Timestamp.Before(f.since) {
		return nil
	}
	err := f.show(e)
	if err != nil {
		f.end(err)
	}
	return err
}
