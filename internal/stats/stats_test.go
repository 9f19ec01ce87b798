package stats_test

import (
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/stats"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// counts are those of every status, most of them 0.
func counts(some map[sandboxmcp.Status]int64) map[sandboxmcp.Status]int64 {
	all := map[sandboxmcp.Status]int64{}
	for _, s := range sandboxmcp.Statuses() {
		all[s] = some[s]
	}
	return all
}

// TestCountsNameEveryStatus: a reader finds each status, also those that did not occur, and
// may change what it got.
func TestCountsNameEveryStatus(t *testing.T) {
	var c stats.Counts
	if by, took := c.Snapshot(); !maps.Equal(by, counts(nil)) || took != (sandboxmcp.Latency{}) {
		t.Errorf("before the first request: got %v and %v, want 0 of each status and no latency", by, took)
	}
	c.Add(sandboxmcp.StatusCompleted, time.Millisecond)
	c.Add(sandboxmcp.StatusCompleted, time.Millisecond)
	c.Add(sandboxmcp.StatusFailed, time.Millisecond)
	by, _ := c.Snapshot()
	want := counts(map[sandboxmcp.Status]int64{sandboxmcp.StatusCompleted: 2, sandboxmcp.StatusFailed: 1})
	if !maps.Equal(by, want) {
		t.Errorf("got %v, want %v", by, want)
	}
	by[sandboxmcp.StatusCompleted] = 100
	if by, _ = c.Snapshot(); !maps.Equal(by, want) {
		t.Errorf("after a reader changed its copy: got %v, want %v", by, want)
	}
}

// TestLatencyOfTheLastRequests: the latency is that of the last 1024 requests in whatever
// order they came, and the counts are those of all.
func TestLatencyOfTheLastRequests(t *testing.T) {
	for name, c := range map[string]struct {
		took func(i int) time.Duration
		n    int
		want sandboxmcp.Latency
	}{
		"one":       {func(int) time.Duration { return 1500 * time.Microsecond }, 1, sandboxmcp.Latency{P50: 1.5, P99: 1.5}},
		"two":       {func(i int) time.Duration { return time.Duration(i) * time.Millisecond }, 2, sandboxmcp.Latency{P50: 1, P99: 1}},
		"a hundred": {func(i int) time.Duration { return time.Duration(i) * time.Millisecond }, 101, sandboxmcp.Latency{P50: 50, P99: 99}},
		"falling":   {func(i int) time.Duration { return time.Duration(100-i) * time.Millisecond }, 101, sandboxmcp.Latency{P50: 50, P99: 99}},
		"one slow":  {func(i int) time.Duration { return time.Duration(i/100) * time.Hour }, 101, sandboxmcp.Latency{}},
		"forgotten": {func(i int) time.Duration { return slowUntil(i, 1024) }, 2048, sandboxmcp.Latency{P50: 1, P99: 1}},
		"10 remain": {func(i int) time.Duration { return slowUntil(i, 1034) }, 2048, sandboxmcp.Latency{P50: 1, P99: 1}},
		"11 remain": {func(i int) time.Duration { return slowUntil(i, 1035) }, 2048, sandboxmcp.Latency{P50: 1, P99: 1000}},
		"the rest":  {func(i int) time.Duration { return slowUntil(i, 500) }, 1023, sandboxmcp.Latency{P50: 1, P99: 1000}},
	} {
		var s stats.Counts
		for i := range c.n {
			s.Add(sandboxmcp.StatusCompleted, c.took(i))
		}
		by, got := s.Snapshot()
		if got != c.want || by[sandboxmcp.StatusCompleted] != int64(c.n) {
			t.Errorf("%s: got %v of %d requests, want %v of %d", name, got, by[sandboxmcp.StatusCompleted], c.want, c.n)
		}
	}
}

// slowUntil is the duration of request i, of which the first n take a second.
func slowUntil(i, n int) time.Duration {
	if i < n {
		return time.Second
	}
	return time.Millisecond
}

// TestCountsOfConcurrentRequests: none is lost.
func TestCountsOfConcurrentRequests(t *testing.T) {
	var c stats.Counts
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				c.Add(sandboxmcp.StatusSignalled, time.Millisecond)
				c.Snapshot()
			}
		})
	}
	all.Wait()
	if by, _ := c.Snapshot(); by[sandboxmcp.StatusSignalled] != 800 {
		t.Errorf("got %d requests, want 800", by[sandboxmcp.StatusSignalled])
	}
}

// TestResourcesGrow: memory and processor time are those of this process.
func TestResourcesGrow(t *testing.T) {
	before := stats.Resources()
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < size; i += 512 {
		block[i] = 1
	}
	after := stats.Resources()
	if grown := after.RAMMB - before.RAMMB; before.RAMMB > 512 || grown < 32 || grown > 512 {
		t.Errorf("after 64 MiB were used: got %v MiB more than %v, want about 64 more than what is in memory", grown, before.RAMMB)
	}
	runtime.KeepAlive(block)
	if runtime.GOOS != "linux" {
		return // its processor time is not read there
	}
	testkit.Until(t, "more processor time", func() bool { return stats.Resources().CPUSeconds > after.CPUSeconds })
}
