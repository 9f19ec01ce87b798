package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// counts holds statistics of ended requests.
type counts struct {
	mu       sync.Mutex
	byStatus map[sandboxmcp.Status]int64
	recent   []float64 // durations of the last recentRuns requests in milliseconds, a ring
	next     int
}

const recentRuns = 1024

// add counts a request that ran. A request that was refused before it ran is not counted.
func (c *counts) add(x *execution, now time.Time) {
	if x.err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byStatus == nil {
		c.byStatus = map[sandboxmcp.Status]int64{}
	}
	c.byStatus[x.res.Status]++
	ms := milliseconds(now.Sub(x.received))
	if len(c.recent) < recentRuns {
		c.recent = append(c.recent, ms)
		return
	}
	c.recent[c.next] = ms
	c.next = (c.next + 1) % recentRuns
}

func (c *counts) snapshot() (map[sandboxmcp.Status]int64, sandboxmcp.Latency) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[sandboxmcp.Status]int64{}
	for _, s := range sandboxmcp.Statuses() {
		by[s] = 0
	}
	maps.Copy(by, c.byStatus)
	sorted := slices.Sorted(slices.Values(c.recent))
	if len(sorted) == 0 {
		return by, sandboxmcp.Latency{}
	}
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }
	return by, sandboxmcp.Latency{P50: at(0.5), P99: at(0.99)}
}
