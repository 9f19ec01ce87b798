package app

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// stuck is an engine whose Close does not return before release.
type stuck struct {
	Engine
	release chan struct{}
}

func (s *stuck) Stats(context.Context) (sandboxmcp.Stats, error) { return sandboxmcp.Stats{}, nil }

func (s *stuck) Close() error {
	<-s.release
	return nil
}

// TestAServerThatIsHeldUpExits: the process exits after stopLimit, whatever its
// engine waits for.
func TestAServerThatIsHeldUpExits(t *testing.T) {
	t.Parallel() // it waits for the limit
	s := &stuck{release: make(chan struct{})}
	a := New([]string{"HOME=" + t.TempDir(), "SANDBOXMCP_STATE_DIR=" + t.TempDir()}, nil, io.Discard, io.Discard)
	a.Open = func(context.Context, Options) (Engine, error) { return s, nil }
	statuses := make(chan int, 2)
	var once sync.Once
	a.Exit = func(status int) {
		statuses <- status
		once.Do(func() { close(s.release) })
	}
	cfg, err := config.Load(config.Sources{Env: a.Env})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.asServer(ctx, cfg, "test", func(front) error { return nil }); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-statuses:
		if got != 1 {
			t.Errorf("got exit status %d, want 1", got)
		}
	default:
		t.Error("got no exit of the process, want one")
	}
}

// TestAServerThatEndsIsNotExited: a bound that was stopped does nothing.
func TestAServerThatEndsIsNotExited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exited := 0
		b := &bound{exit: func() { exited++ }}
		b.start()
		time.Sleep(stopLimit - time.Millisecond)
		b.stop()
		b.start()
		time.Sleep(time.Hour)
		if exited != 0 {
			t.Errorf("got %d exits, want none", exited)
		}
		late := &bound{exit: func() { exited++ }}
		late.start()
		late.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if exited != 1 {
			t.Errorf("got %d exits, want one", exited)
		}
	})
}
