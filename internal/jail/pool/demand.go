package pool

import (
	"runtime"
	"slices"
	"time"
)

// demand is what a pool with a Window records about a key.
type demand[V any] struct {
	build  func() (V, bool) // makes a value
	last   time.Time        // time of the last demand
	wanted bool             // values are built in advance: there were two demands within Window, or Eager
	first  chan struct{}    // a first demand was announced and has not come; closed when its value is built; else nil
	used   int              // values in use: demands for which Done was not called yet

	since        time.Time // begin of the current window
	peak, before int       // most in use at once in this window and the one before
}

// demandLocked records a demand for the key. If too many keys are remembered and all of them are in
// use, it does not record it.
func (p *Pool[K, V]) demandLocked(key K, build func() (V, bool)) {
	now := time.Now()
	e := p.entries[key]
	switch {
	case e != nil && e.demand.first != nil:
		e.demand.first = nil
	case e != nil:
		e.demand.wanted = e.demand.wanted || now.Sub(e.demand.last) <= p.policy.Window
	case !p.roomLocked(now):
		return
	default:
		e = &entry[V]{demand: demand[V]{build: build, since: now, wanted: p.policy.Eager}}
		p.entries[key] = e
	}
	d := &e.demand
	d.last = now
	d.used++
	d.advance(now, p.policy.Window)
	d.peak = max(d.peak, d.used)
}

// advance begins a new window if the current one is over.
func (d *demand[V]) advance(now time.Time, window time.Duration) {
	switch age := now.Sub(d.since); {
	case age > 2*window:
		d.before, d.peak, d.since = d.used, d.used, now
	case age > window:
		d.before, d.peak, d.since = d.peak, d.used, now
	}
}

// roomLocked reports whether one more key can be remembered. It forgets one without values
// and without demand, if necessary.
func (p *Pool[K, V]) roomLocked(now time.Time) bool {
	if len(p.entries) < p.policy.Keys {
		return true
	}
	for key, e := range p.entries {
		if d := e.demand; d.used == 0 && len(e.values) == 0 && (!d.wanted || now.Sub(d.last) > p.policy.Window) {
			delete(p.entries, key)
			return true
		}
	}
	return false
}

// missingLocked returns how many values a key lacks. The number is negative for a surplus.
func (p *Pool[K, V]) missingLocked(key K, e *entry[V]) int {
	if e == nil {
		return 0
	}
	want := 0
	switch {
	case e.demand.wanted:
		want = p.policy.Want(key, max(e.demand.peak, e.demand.before))
	case e.demand.first != nil:
		want = 1
	}
	return want - len(e.values)
}

// surplusLocked removes and returns the oldest values of the keys that have too many. It forgets
// keys that have no values and no recent demand.
func (p *Pool[K, V]) surplusLocked(now time.Time) (gone []V) {
	for key, e := range p.entries {
		if now.Sub(e.demand.last) >= p.policy.Idle {
			if e.demand.used == 0 && len(e.values) == 0 {
				delete(p.entries, key)
			}
			continue
		}
		e.demand.advance(now, p.policy.Window)
		more := -p.missingLocked(key, e)
		if more <= 0 {
			continue
		}
		for _, kept := range e.values[:more] {
			gone = append(gone, kept.v)
		}
		e.values = slices.Delete(e.values, 0, more)
		p.removedLocked(key, more)
	}
	return gone
}

// Done records that the value of a call of Take is no longer in use.
func (p *Pool[K, V]) Done(key K) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[key]; e != nil && e.demand.used > 0 {
		e.demand.used--
	}
}

// Expect replaces the function that builds values of the key, if its demand is known. build is
// called by one goroutine at a time, without locks. If it returns false, there is no value and Fill
// ends.
func (p *Pool[K, V]) Expect(key K, build func() (V, bool)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[key]; e != nil {
		e.demand.build = build
	}
}

// Announce says that the first demand for a key will come soon. It starts to build a value for it and
// does not wait. A Take that comes meanwhile waits for the value. If the key is known, or if too many
// keys are, Announce does nothing and returns false.
func (p *Pool[K, V]) Announce(key K, build func() (V, bool)) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.entries[key] != nil || p.closed || !p.roomLocked(now) {
		return false
	}
	built := make(chan struct{})
	p.entries[key] = &entry[V]{demand: demand[V]{build: build, since: now, last: now, wanted: p.policy.Eager, first: built}}
	go func() {
		defer close(built)
		p.turn.Lock()
		defer p.turn.Unlock()
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return
		}
		if v, ok := build(); ok && !p.Put(key, v) {
			_ = p.policy.Drop(v)
		}
	}()
	return true
}

// await waits for the value of an announced demand.
func (p *Pool[K, V]) await(key K) {
	var built chan struct{}
	p.mu.Lock()
	if e := p.entries[key]; e != nil {
		built = e.demand.first
	}
	p.mu.Unlock()
	if built != nil {
		<-built
	}
}

// Fill starts to build the missing values, one at a time, unless that is under way. It does not
// wait. If a build that began before the call fails, it is tried again.
func (p *Pool[K, V]) Fill() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refill = true
	if _, e := p.lackingLocked(); e == nil || p.filling {
		return
	}
	p.filling = true
	go func() {
		for p.fillOne() {
			runtime.Gosched() // requests go first
		}
	}()
}

// fillOne builds one value. It returns false when Fill has ended.
func (p *Pool[K, V]) fillOne() bool {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	key, e := p.lackingLocked()
	if e == nil {
		p.filling = false
		p.mu.Unlock()
		return false
	}
	build := e.demand.build
	p.refill = false
	p.mu.Unlock()
	v, ok := build()
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.filling = p.refill
		return p.refill
	}
	if !p.Put(key, v) {
		_ = p.policy.Drop(v)
	}
	return true
}

// lackingLocked returns the key with the latest demand among those that lack values, or a nil
// entry.
func (p *Pool[K, V]) lackingLocked() (key K, found *entry[V]) {
	if p.closed || p.count >= p.policy.Total {
		return key, nil
	}
	now := time.Now()
	for k, e := range p.entries {
		if e.demand.build != nil && p.missingLocked(k, e) > 0 && now.Sub(e.demand.last) < p.policy.Idle && (found == nil || e.demand.last.After(found.demand.last)) {
			key, found = k, e
		}
	}
	return key, found
}
