package door

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

const (
	wrongRate  = 5    // wrong keys per second and address, in the long run
	wrongBurst = 50   // wrong keys of an address at once
	maxCallers = 4096 // callers that are remembered
)

// rates bounds how many requests a caller sends, and how many wrong keys an address.
type rates struct {
	limit  rate.Limit
	burst  int
	mu     sync.Mutex
	called map[string]*rate.Limiter
	missed map[string]*rate.Limiter
}

// newRates returns limits of that many requests per second; 0: no limit.
func newRates(perSecond int) *rates {
	r := &rates{limit: rate.Inf, called: map[string]*rate.Limiter{}, missed: map[string]*rate.Limiter{}}
	if perSecond > 0 {
		r.limit, r.burst = rate.Limit(perSecond), 2*perSecond
	}
	return r
}

// take counts a request of a caller.
func (r *rates) take(principal string) error {
	if r.limit == rate.Inf {
		return nil
	}
	return r.in(r.called, principal, r.limit, r.burst, "requests")
}

// wrong counts a wrong key from an address, or from the network of an IPv6 address. Callers with a valid key
// are not affected.
func (r *rates) wrong(remote string) error {
	return r.in(r.missed, listen.Client(remote), wrongRate, wrongBurst, "wrong keys")
}

func (r *rates) in(all map[string]*rate.Limiter, name string, limit rate.Limit, burst int, what string) error {
	r.mu.Lock()
	l := all[name]
	if l == nil {
		if len(all) >= maxCallers { // forget those that are at rest
			for n, other := range all {
				if other.Tokens() >= float64(other.Burst()) {
					delete(all, n)
				}
			}
		}
		if len(all) >= maxCallers {
			name = "" // the rest share one limit
			l = all[name]
		}
		if l == nil {
			l = rate.NewLimiter(limit, burst)
			all[name] = l
		}
	}
	r.mu.Unlock()
	reserved := l.Reserve()
	wait := reserved.Delay()
	if wait == 0 {
		return nil
	}
	reserved.Cancel()
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "too many %s: more than %v a second", what, float64(limit)).
		WithHint("send fewer").With(retryAfter, int(math.Ceil(max(wait, time.Second).Seconds())))
}
