// Package share bounds what the callers of a server hold together, such as memory, so that none of
// them keeps the others from it.
//
// A bound can be used in three ways. [Bound.Enter] lets a request wait for its memory; the caller who
// holds least is served first. [Bound.Try] refuses a request if its caller would then hold more than is
// left for all others. [Bound.Claim] is for data that arrives in pieces: it registers the whole size and
// counts what has arrived.
package share

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lookAgain is how often a waiting request looks for a place that takes too long.
const lookAgain = time.Second

// Bound is a bound on what all callers hold together. Its methods, and those of Place, may be called
// concurrently.
type Bound struct {
	most     int64
	patience time.Duration

	mu    sync.Mutex // guards the fields below, and those of all places
	held  int64
	of    map[string]*usage   // callers that have places
	list  map[*Place]struct{} // places that are held
	count int64               // places that were held so far
	queue []*Place            // waiting, oldest first
	freed chan struct{}       // closed and replaced when there is more room
}

// usage is what one caller has.
type usage struct {
	places        int
	claimed, held int64
}

// New returns a bound. A place that takes longer than patience is ended if another caller waits who
// holds less.
func New(most int64, patience time.Duration) *Bound {
	return &Bound{most: most, patience: patience, of: map[string]*usage{}, list: map[*Place]struct{}{}, freed: make(chan struct{})}
}

// Ask says who needs a place, and of which size.
type Ask struct {
	Caller string
	Size   int64
	Alone  bool            // there are no other callers, so the caller leaves no room for them
	End    func()          // ends the work that needs the place, so that Leave is called soon; may be called again; nil: it cannot be ended
	Gone   <-chan struct{} // closed when the client has disconnected; the request then waits behind all others; nil: not known
}

// Full says why something was refused.
type Full struct {
	Held int64 // by all callers; if Own is set, what the caller has claimed
	Own  bool  // the caller would hold more than it leaves to others
}

// Place is the part of a Bound that a request holds or waits for.
type Place struct {
	Ask

	all     *Bound
	claimed int64
	held    int64
	fits    chan struct{} // closed when the place is held; nil: it never waits
	since   time.Time     // when it was first held, or when Begin was last called
	number  int64         // order of places with the same since
	ended   bool
}

// Enter returns a place that is held at once or waits. The caller calls Leave, and Wait if Fits
// returns false. A place that is larger than the bound is held alone. A place of size 0 never waits.
func (b *Bound) Enter(a Ask) *Place {
	p := &Place{Ask: a, all: b, fits: make(chan struct{})}
	if a.Size == 0 {
		close(p.fits)
		return p
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, p)
	b.admitLocked()
	return p
}

// Try returns a place that is held, or says why there is none. The caller calls Leave.
func (b *Bound) Try(a Ask) (*Place, *Full) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryLocked(a, a.Size)
}

// Claim returns a place that holds nothing yet, or says why there is none. Against it counts what other
// callers hold, not what they claim. The caller calls Leave, and Hold with what has arrived.
func (b *Bound) Claim(a Ask) (*Place, *Full) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryLocked(a, 0)
}

func (b *Bound) tryLocked(a Ask, hold int64) (*Place, *Full) {
	if full := b.fullLocked(a, 0); full != nil {
		return nil, full
	}
	p := &Place{Ask: a, all: b}
	b.addLocked(p, a.Size, hold)
	return p, nil
}

// fullLocked says why the caller cannot claim a place of a.Size, or returns nil. besides is what the
// caller has already claimed for this place.
func (b *Bound) fullLocked(a Ask, besides int64) *Full {
	var mine usage
	if u := b.of[a.Caller]; u != nil {
		mine = *u
	}
	mine.claimed -= besides
	others := b.held - mine.held
	switch {
	case mine.claimed == 0:
		if others > 0 && others+a.Size > b.most {
			return &Full{Held: b.held}
		}
	case a.Alone:
		if others+mine.claimed+a.Size > b.most {
			return &Full{Held: others + mine.claimed}
		}
	case mine.claimed+a.Size > b.most-others-mine.claimed:
		return &Full{Held: mine.claimed, Own: true}
	}
	return nil
}

// addLocked adds a place that is held.
func (b *Bound) addLocked(p *Place, claim, hold int64) {
	u := b.of[p.Caller]
	if u == nil {
		u = &usage{}
		b.of[p.Caller] = u
	}
	u.places++
	u.claimed += claim
	u.held += hold
	b.held += hold
	b.count++
	p.claimed, p.held, p.since, p.number = claim, hold, time.Now(), b.count
	b.list[p] = struct{}{}
}

// holdsLocked returns what a caller holds.
func (b *Bound) holdsLocked(caller string) int64 {
	if u := b.of[caller]; u != nil {
		return u.held
	}
	return 0
}

// admitLocked admits waiting places, in the order of beforeLocked, as long as they fit.
func (b *Bound) admitLocked() {
	for len(b.queue) > 0 {
		next := 0
		for i, p := range b.queue {
			if b.beforeLocked(p, b.queue[next]) {
				next = i
			}
		}
		p := b.queue[next]
		if b.held > 0 && b.held+p.Size > b.most {
			return
		}
		b.queue = slices.Delete(b.queue, next, next+1)
		b.addLocked(p, p.Size, p.Size)
		close(p.fits)
	}
}

// beforeLocked reports whether p is admitted before q, which waits for longer.
func (b *Bound) beforeLocked(p, q *Place) bool {
	if gone := p.gone(); gone != q.gone() {
		return !gone
	}
	return b.holdsLocked(p.Caller) < b.holdsLocked(q.Caller)
}

// gone reports whether the client has disconnected.
func (p *Place) gone() bool {
	select {
	case <-p.Gone:
		return true
	default:
		return false
	}
}

// Fits reports whether a place of Enter is held.
func (p *Place) Fits() bool {
	select {
	case <-p.fits:
		return true
	default:
		return false
	}
}

// Wait waits until the place is held. The error is the cause of ctx's end.
func (p *Place) Wait(ctx context.Context) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		p.all.hurry(p)
		select {
		case <-p.fits:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hurry ends the oldest place of the caller who holds most, if that caller holds more than the caller of
// p and the place is older than patience. It ends none for a client that has disconnected.
func (b *Bound) hurry(p *Place) {
	if p.gone() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var slow *Place
	mine := b.holdsLocked(p.Caller)
	for h := range b.list {
		if h.End != nil && b.holdsLocked(h.Caller) > mine && (slow == nil || b.slowerLocked(h, slow)) {
			slow = h
		}
	}
	if slow != nil && time.Since(slow.since) >= b.patience {
		slow.ended = true
		slow.End() // a later hurry calls it again if that was too early
	}
}

// slowerLocked reports whether p is ended before q: its caller holds more, or it is held for longer.
func (b *Bound) slowerLocked(p, q *Place) bool {
	switch its, other := b.holdsLocked(p.Caller), b.holdsLocked(q.Caller); {
	case its != other:
		return its > other
	case !p.since.Equal(q.since):
		return p.since.Before(q.since)
	}
	return p.number < q.number
}

// Hold adds what has arrived. If it does not fit, Hold waits until it does, for at most atMost. It
// returns false if nothing was added: it did not fit in time, or the caller may not claim so much.
func (p *Place) Hold(ctx context.Context, more int64, atMost time.Duration) bool {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	late := time.NewTimer(atMost)
	defer late.Stop()
	for {
		held, freed := p.hold(more)
		if held || freed == nil {
			return held
		}
		p.all.hurry(p)
		select {
		case <-freed:
		case <-again.C:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// hold adds what has arrived. If it does not fit now, freed is closed when there is more room.
func (p *Place) hold(more int64) (held bool, freed <-chan struct{}) {
	b := p.all
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.of[p.Caller]
	if u == nil || p.ended {
		return false, nil
	}
	if further := p.held + more - p.claimed; further > 0 { // more has arrived than was claimed
		a := p.Ask
		a.Size = p.held + more
		if full := b.fullLocked(a, p.claimed); full != nil && (full.Own || a.Alone) {
			return false, nil
		}
		u.claimed += further
		p.claimed += further
	}
	if b.held > p.held && b.held+more > b.most {
		return false, b.freed
	}
	p.held += more
	u.held += more
	b.held += more
	return true, nil
}

// Begin begins the next part of the work that needs the place, such as sending an answer. end replaces
// Ask.End; nil: the work cannot be ended from now on.
func (p *Place) Begin(end func()) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.since, p.End = time.Now(), end
}

// Ended reports whether the place was ended in favor of another caller.
func (p *Place) Ended() bool {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	return p.ended
}

// Leave gives the place back.
func (p *Place) Leave() {
	b := p.all
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, p); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	if _, there := b.list[p]; there {
		delete(b.list, p)
		b.held -= p.held
		u := b.of[p.Caller]
		u.held -= p.held
		u.claimed -= p.claimed
		if u.places--; u.places == 0 {
			delete(b.of, p.Caller)
		}
		close(b.freed)
		b.freed = make(chan struct{})
	}
	b.admitLocked()
}

// Held returns what all callers hold.
func (b *Bound) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
