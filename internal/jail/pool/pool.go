// Package pool keeps values ready for their next use, by key: sandboxes, fork servers,
// cgroups, network namespaces. A Policy says how many are kept, how long, what one costs
// and how it is dropped.
//
// A value is used in one of two ways. Take gives it to one caller, and it leaves the pool.
// Share lets callers use it together, and it stays. A pool with a Window follows demand:
// it counts how many values of a key are in use, and Fill builds as many in advance.
package pool

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Policy describes a Pool.
type Policy[K comparable, V any] struct {
	Total int           // most values kept; 0: none
	Idle  time.Duration // a value without demand for this time is dropped; 0: never

	// Drop ends a value that is not given out again. It is called once for each such value, without
	// locks. If a value is dropped because of its age, the error is ignored.
	Drop func(V) error
	// Dead reports whether a value can no longer be used. It may be called concurrently.
	// Nil means that values do not die.
	Dead func(V) bool
	// Cost adds what a value represents to counts, under the names of the statistics. The pool is
	// locked: Cost may not block or use the pool. Nil adds nothing.
	Cost func(v V, counts map[string]int)

	// Window, if not 0, makes the pool follow demand. After two demands for a key within Window, or
	// after the first with Eager, its values are built in advance. Age then counts from the key's last
	// demand.
	Window time.Duration
	Eager  bool
	Keys   int                       // with Window: most keys whose demand is remembered
	Want   func(key K, peak int) int // with Window: returns how many values to keep; peak is the most that were recently in use at once
}

// Pool keeps values by key. Take returns the value that was put last, so that surplus values age. A
// pool has no goroutine except while Fill builds, and no timer while it is empty. Its methods may
// be called concurrently, but not from Dead, Cost or the function of Each. A nil Pool keeps
// nothing.
type Pool[K comparable, V any] struct {
	policy Policy[K, V]

	turn sync.Mutex // held while values are built or dropped, so that Empty can wait for both

	mu      sync.Mutex
	entries map[K]*entry[V] // guarded by mu
	count   int             // values in entries; guarded by mu
	timer   *time.Timer     // runs while count > 0; guarded by mu
	filling bool            // guarded by mu
	refill  bool            // Fill was called after the build that is under way began; guarded by mu
	closed  bool            // guarded by mu
}

// entry holds the values and the demand of one key.
type entry[V any] struct {
	values []value[V] // the oldest first
	demand demand[V]
}

type value[V any] struct {
	v     V
	since time.Time // when it was put or last shared
}

// Keeper is a Pool with any types of key and value.
type Keeper interface {
	Count(counts map[string]int)
	Empty() error
}

// New makes an empty pool. The caller closes it.
func New[K comparable, V any](policy Policy[K, V]) *Pool[K, V] {
	return &Pool[K, V]{policy: policy, entries: map[K]*entry[V]{}}
}

// Take removes a value of the key and returns it. ok is false if none is left. Dead values are
// dropped on the way. With a Window, Take counts as demand, also if it fails: the caller calls Done
// when it no longer uses the value, or the one that it made instead. build makes values of the key
// for Fill, until Expect replaces it. It may be nil. Take waits only for a value that was announced.
func (p *Pool[K, V]) Take(key K, build func() (V, bool)) (v V, ok bool) {
	if p == nil {
		return v, false
	}
	p.await(key)
	p.mu.Lock()
	if p.policy.Window > 0 {
		p.demandLocked(key, build)
	}
	v, ok = p.popLocked(key)
	p.mu.Unlock()
	for ok && p.dead(v) {
		_ = p.policy.Drop(v)
		p.mu.Lock()
		v, ok = p.popLocked(key)
		p.mu.Unlock()
	}
	return v, ok
}

// popLocked removes the newest value of a key.
func (p *Pool[K, V]) popLocked(key K) (v V, ok bool) {
	e := p.entries[key]
	if e == nil || len(e.values) == 0 {
		return v, false
	}
	last := len(e.values) - 1
	v = e.values[last].v
	e.values[last] = value[V]{}
	e.values = e.values[:last]
	p.removedLocked(key, 1)
	return v, true
}

// removedLocked updates the pool after n values were removed from a key.
func (p *Pool[K, V]) removedLocked(key K, n int) {
	p.count -= n
	if p.count == 0 && p.timer != nil {
		p.timer.Stop()
	}
	if p.policy.Window == 0 && len(p.entries[key].values) == 0 {
		delete(p.entries, key)
	}
}

func (p *Pool[K, V]) dead(v V) bool { return p.policy.Dead != nil && p.policy.Dead(v) }

// Put keeps a value. It returns false if the pool is closed or full, if there is no demand, or if
// the value is dead. The caller then still owns the value.
func (p *Pool[K, V]) Put(key K, v V) bool {
	if p == nil || p.dead(v) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if p.closed || p.count >= p.policy.Total || p.policy.Window > 0 && p.missingLocked(key, e) <= 0 {
		return false
	}
	if e == nil {
		e = &entry[V]{}
		p.entries[key] = e
	}
	p.addLocked(e, v)
	return true
}

func (p *Pool[K, V]) addLocked(e *entry[V], v V) {
	e.values = append(e.values, value[V]{v, time.Now()})
	p.count++
	if p.count == 1 {
		p.armLocked(p.policy.Idle)
	}
}

// armLocked sets the timer that drops old values to d.
func (p *Pool[K, V]) armLocked(d time.Duration) {
	switch {
	case p.policy.Idle <= 0:
	case p.timer == nil:
		p.timer = time.AfterFunc(d, func() { _ = p.drop(p.oldLocked) })
	default:
		p.timer.Reset(d)
	}
}

// Share returns the value of a key, which stays in the pool, and resets its age. If there is none,
// create makes it. create is called with the pool locked: it may not block or use the pool. ok is
// false if the pool is closed or full. A pool with a Window is not shared.
func (p *Pool[K, V]) Share(key K, create func() V) (v V, ok bool) {
	if p == nil {
		return v, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[key]; e != nil && len(e.values) > 0 {
		e.values[0].since = time.Now()
		return e.values[0].v, true
	}
	if p.closed || p.count >= p.policy.Total {
		return v, false
	}
	v, e := create(), &entry[V]{}
	p.entries[key] = e
	p.addLocked(e, v)
	return v, true
}

// Peek returns the oldest value of a key, which stays in the pool. It does not reset its age.
func (p *Pool[K, V]) Peek(key K) (v V, ok bool) {
	if p == nil {
		return v, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[key]; e != nil && len(e.values) > 0 {
		return e.values[0].v, true
	}
	return v, false
}

// Len returns how many values are kept.
func (p *Pool[K, V]) Len() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Each calls f for every value that is kept, with the pool locked.
func (p *Pool[K, V]) Each(f func(V)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		for _, kept := range e.values {
			f(kept.v)
		}
	}
}

// Count adds the costs of all values to counts.
func (p *Pool[K, V]) Count(counts map[string]int) {
	p.Each(func(v V) {
		if p.policy.Cost != nil {
			p.policy.Cost(v, counts)
		}
	})
}

// DropIf drops the values for which match returns true, and waits for that. match is
// called with the pool locked.
func (p *Pool[K, V]) DropIf(match func(V) bool) error {
	return p.drop(func() []V { return p.cutLocked(func(_ *entry[V], kept value[V]) bool { return match(kept.v) }) })
}

// Evict drops the oldest value of the key with the least recent demand. It returns false if nothing
// is kept. It does not wait for Fill.
func (p *Pool[K, V]) Evict() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	var from K
	var oldest *entry[V]
	var since time.Time
	for key, e := range p.entries {
		if len(e.values) == 0 {
			continue
		}
		if at := p.usedLocked(e, e.values[0]); oldest == nil || at.Before(since) {
			from, oldest, since = key, e, at
		}
	}
	if oldest == nil {
		p.mu.Unlock()
		return false
	}
	v := oldest.values[0].v
	oldest.values = slices.Delete(oldest.values, 0, 1)
	p.removedLocked(from, 1)
	p.mu.Unlock()
	_ = p.policy.Drop(v)
	return true
}

// Empty drops everything, also a value that is being built, and forgets all demand. It
// returns when that is done.
func (p *Pool[K, V]) Empty() error { return p.drop(p.takeAllLocked) }

// Close is Empty for good: afterwards nothing is built or put. It may be called more than once.
func (p *Pool[K, V]) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.Empty()
}

func (p *Pool[K, V]) takeAllLocked() []V {
	all := p.cutLocked(func(*entry[V], value[V]) bool { return true })
	clear(p.entries)
	return all
}

// drop drops the values that choose removes from the pool.
func (p *Pool[K, V]) drop(choose func() []V) error {
	if p == nil {
		return nil
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	gone := choose()
	p.mu.Unlock()
	var errs []error
	for _, v := range gone {
		errs = append(errs, p.policy.Drop(v))
	}
	return errors.Join(errs...)
}

// cutLocked removes the values for which match returns true, and returns them.
func (p *Pool[K, V]) cutLocked(match func(e *entry[V], kept value[V]) bool) (gone []V) {
	for key, e := range p.entries {
		rest, before := e.values[:0], len(e.values)
		for _, kept := range e.values {
			if match(e, kept) {
				gone = append(gone, kept.v)
			} else {
				rest = append(rest, kept)
			}
		}
		clear(e.values[len(rest):])
		e.values = rest
		if n := before - len(rest); n > 0 {
			p.removedLocked(key, n)
		}
	}
	return gone
}

// usedLocked returns the time from which a value's age counts.
func (p *Pool[K, V]) usedLocked(e *entry[V], kept value[V]) time.Time {
	if p.policy.Window > 0 {
		return e.demand.last
	}
	return kept.since
}

// oldLocked removes and returns the values without recent demand, and those above demand.
func (p *Pool[K, V]) oldLocked() (gone []V) {
	now, wait := time.Now(), p.policy.Idle
	gone = p.cutLocked(func(e *entry[V], kept value[V]) bool {
		left := p.policy.Idle - now.Sub(p.usedLocked(e, kept))
		if left > 0 {
			wait = min(wait, left)
		}
		return left <= 0
	})
	if p.policy.Window > 0 {
		gone = append(gone, p.surplusLocked(now)...)
	}
	if p.count > 0 {
		p.armLocked(wait)
	}
	return gone
}
