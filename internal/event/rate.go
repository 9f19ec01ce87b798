package event

import (
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	rateEvery = time.Second
	rateNames = 1024 // namespaces that are remembered
)

// Rate lets through one event a second for each namespace, because refused callers retry.
// Its zero value lets the first one through. It may be used concurrently.
type Rate struct {
	mu   sync.Mutex
	told map[sandboxmcp.Namespace]time.Time
}

// Due reports whether an event of a namespace may be emitted now, and counts it as emitted.
func (r *Rate) Due(ns sandboxmcp.Namespace, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, told := r.told[ns]; told && now.Sub(last) < rateEvery {
		return false
	}
	if len(r.told) >= rateNames {
		clear(r.told)
	}
	if r.told == nil {
		r.told = map[sandboxmcp.Namespace]time.Time{}
	}
	r.told[ns] = now
	return true
}
