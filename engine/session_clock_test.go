package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// listedInAnHour are files of a sandbox that take an hour of the engine's clock to list.
type listedInAnHour struct {
	backend.Files

	clock *atomic.Int64
}

func (f listedInAnHour) List(context.Context, string, int) ([]backend.FileInfo, bool, error) {
	time.Sleep(200 * time.Millisecond) // the run would begin meanwhile
	f.clock.Add(int64(time.Hour))
	return nil, false, nil
}

// slowDriver answers the first cell of a session until the sandbox ends, and writes little.
func slowDriver(r *fakeRun) backend.Exit {
	r.Frame(map[string]any{"type": "ready"})
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-r.Killed:
			return backend.Exit{}
		case <-t.C:
			r.Frame(map[string]any{"type": "done", "id": 1, "ok": true})
		}
	}
}

// TestListingTheFilesOfASessionTakesNoTimeOfTheRun: the time of a run and its timeout begin when its files are listed.
func TestListingTheFilesOfASessionTakesNoTimeOfTheRun(t *testing.T) {
	var clock atomic.Int64
	f := &fake{program: slowDriver, onFiles: func(x backend.Files) backend.Files { return listedInAnHour{x, &clock} }}
	e := open(t, f, func(c *engine.Config) { c.Now = func() time.Time { return time.Unix(2e9, clock.Load()) } })
	res := execute(t, e, sandboxmcp.Request{Code: "x", Session: &sandboxmcp.SessionSpec{Language: sandboxmcp.Python}})
	if clock.Load() == 0 || res.Usage.WallSeconds != 0 {
		t.Errorf("got %v seconds, want none", res.Usage.WallSeconds)
	}
}
