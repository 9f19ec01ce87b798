package docker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// meter asks the engine for the usage of a container whose control group this process cannot read.
type meter struct {
	api   *dockerapi.Client
	id    string
	since time.Time // the container's start, by the engine's clock; zero: not known
	limit int64     // of memory, in bytes
	log   *slog.Logger
	ahead time.Duration // of the engine's clock

	mu   sync.Mutex
	held dockerapi.Limits // as the engine has read them from the control group
	last backend.Usage
}

const (
	meterLimit = 3 * time.Second // bounds one question
	killWait   = time.Second     // how long after a kill the engine's event may come
	quietTime  = killWait / 10   // the time without an event after which there are no more
)

// seen returns the last usage, without asking.
func (m *meter) seen() backend.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// begin asks which limits the engine has read back.
func (m *meter) begin(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, meterLimit)
	defer cancel()
	held, err := m.api.ContainerLimits(ctx, m.id)
	if err != nil {
		m.log.Warn("the engine does not tell the limits of a container", "container", m.id, "error", err)
	} else {
		m.held = held
	}
}

// walls returns the limits that the engine has read back, and those that it does not tell.
func (m *meter) walls(tasks int) (walls, weak []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const page = 64 << 10 // the kernel rounds
	for _, l := range []struct {
		name, short string
		got, want   uint64
	}{{relay.WallMemory, "memory", m.held.Memory, uint64(m.limit) + page}, {relay.WallTasks, "tasks", m.held.Tasks, uint64(tasks)}} {
		if l.got > 0 && l.got <= l.want {
			walls = append(walls, l.name+" (read by the engine)")
		} else {
			weak = append(weak, l.short+": a limit of the engine that cannot be read back from here")
		}
	}
	return walls, append(weak, "cpu: a limit of the engine that cannot be read back from here")
}

// usage returns the usage of the container: what the relay has seen of its processes, and the engine's events of
// exhausted memory. The engine's own statistics take a second.
func (m *meter) usage(ctx context.Context, seen relay.Spent) backend.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	near := seen.Memory > m.last.PeakMemory && seen.Memory >= m.limit/4*3 // a child may have been killed
	m.last.CPU, m.last.PeakMemory, m.last.PeakTasks = max(m.last.CPU, seen.CPU), max(m.last.PeakMemory, min(seen.Memory, m.limit)), max(m.last.PeakTasks, seen.Tasks, 1)
	until := time.Now().Add(m.ahead)
	if seen.Killed || near {
		until = until.Add(killWait)
	}
	m.last.OOMKills = max(m.last.OOMKills, m.kills(ctx, until))
	if m.last.OOMKills > 0 {
		m.last.PeakMemory = max(m.last.PeakMemory, m.limit)
	}
	return m.last
}

// ahead returns how far an engine's clock is ahead of this machine's.
func ahead(clock string) time.Duration {
	t, err := time.Parse(time.RFC3339Nano, clock)
	if err != nil {
		return 0
	}
	return time.Until(t)
}

// started returns the start of a container as an engine names it.
func started(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// kills returns how many events of exhausted memory the engine has of the container. It waits for the next
// one until a time by the engine's clock, because an event may come after the end of a process. After a new one
// it waits until there are no more, so that a later run is not blamed for one of them.
func (m *meter) kills(ctx context.Context, until time.Time) int {
	ctx, cancel := context.WithTimeout(ctx, meterLimit)
	defer cancel()
	events, err := m.api.Events(ctx, m.since, until, map[string]string{"type": "container", "event": "oom", "container": m.id})
	if err != nil {
		return 0
	}
	defer events.Close()
	quiet := time.AfterFunc(meterLimit, cancel)
	defer quiet.Stop()
	n := 0
	for events.Next() == nil {
		if n++; n > m.last.OOMKills {
			quiet.Reset(quietTime)
		}
	}
	return n
}
