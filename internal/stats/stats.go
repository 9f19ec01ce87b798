// Package stats counts the requests that have ended and their durations, and reads what this
// process uses of the machine.
package stats

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Counts holds statistics of ended requests. Its zero value is empty. Its methods may be
// called concurrently.
type Counts struct {
	mu       sync.Mutex
	byStatus map[sandboxmcp.Status]int64
	recent   []float64 // durations of the last recentRuns requests in milliseconds, a ring buffer
	next     int
}

const recentRuns = 1024

// Add counts a request that ran. took is its duration since its arrival.
func (c *Counts) Add(status sandboxmcp.Status, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byStatus == nil {
		c.byStatus = map[sandboxmcp.Status]int64{}
	}
	c.byStatus[status]++
	ms := float64(took.Microseconds()) / 1000
	if len(c.recent) < recentRuns {
		c.recent = append(c.recent, ms)
		return
	}
	c.recent[c.next] = ms
	c.next = (c.next + 1) % recentRuns
}

// Snapshot returns the number of requests by status, and the latency of the last recentRuns.
func (c *Counts) Snapshot() (map[sandboxmcp.Status]int64, sandboxmcp.Latency) {
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

// Resources returns the memory and CPU time of this process.
func Resources() sandboxmcp.ResourceTotals {
	var m runtime.MemStats
	rss, cpu, ok := processUsage()
	if !ok {
		runtime.ReadMemStats(&m)
		rss = int64(m.Sys)
	}
	return sandboxmcp.ResourceTotals{RAMMB: float64(rss*100>>20) / 100, CPUSeconds: cpu.Seconds()}
}
