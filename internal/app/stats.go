package app

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Stats is the sum over all running servers.
type Stats struct {
	sandboxmcp.Stats
	Servers int `json:"servers"`
}

// Stats adds up the statistics of the running servers. If no server runs, it returns the
// limits of the settings and the number of ended runs in the state directory.
func (a *App) Stats(ctx context.Context, cfg *config.Config) (Stats, error) {
	sum := Stats{Stats: sandboxmcp.Stats{Executions: map[sandboxmcp.Status]int64{}, Pool: map[string]int{}}}
	for _, st := range sandboxmcp.Statuses() {
		sum.Executions[st] = 0
	}
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return sum, err
	}
	for _, p := range peers {
		s, failed := p.Stats(ctx)
		if failed != nil {
			a.Say("server " + p.Peer().ID + " does not answer: " + failed.Error())
			continue
		}
		sum.Servers++
		sum.add(s)
	}
	if sum.Servers > 0 {
		return sum, nil
	}
	sum.Queue.MaxConcurrent = cfg.MaxConcurrentJobs
	at := storeOf(cfg)
	if cfg.Audit == "memory" {
		at = store.Config{Dir: cfg.StateDir, SQLitePath: store.MemoryPath}
	}
	kept, err := store.Executions(ctx, at)
	if err != nil {
		return sum, err
	}
	for st, n := range kept {
		sum.Executions[st] = n
		sum.Queue.TotalProcessed += n
	}
	return sum, nil
}

func (s *Stats) add(o sandboxmcp.Stats) {
	s.Queue.MaxConcurrent += o.Queue.MaxConcurrent
	s.Queue.Active += o.Queue.Active
	s.Queue.Queued += o.Queue.Queued
	s.Queue.TotalProcessed += o.Queue.TotalProcessed
	s.Sessions += o.Sessions
	for k, n := range o.Executions {
		s.Executions[k] += n
	}
	s.LatencyMS.P50 = max(s.LatencyMS.P50, o.LatencyMS.P50)
	s.LatencyMS.P99 = max(s.LatencyMS.P99, o.LatencyMS.P99)
	s.Resources.RAMMB += o.Resources.RAMMB
	s.Resources.CPUSeconds += o.Resources.CPUSeconds
	for k, n := range o.Pool {
		s.Pool[k] += n
	}
	if o.Record != nil && (s.Record == nil || s.Record.Signed) { // one server that does not sign is told
		s.Record = o.Record
	}
}
