package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// progressEvery is how often a client that asked for it hears of a running call.
const progressEvery = time.Second

// reportProgress tells the client every second that its call is alive, if it
// gave a progress token. The returned function ends that and waits, so that
// nothing is said after the result.
func (s *Server) reportProgress(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("progress panicked", "panic", p)
			}
		}()
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token,
				Progress:      float64(n),
				Message:       fmt.Sprintf("%d s", n),
			})
			if err != nil {
				return // the connection ends, and says so elsewhere
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}
