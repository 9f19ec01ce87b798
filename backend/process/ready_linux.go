package process

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Sandboxes that are ready before somebody asks: empty ones, in which nothing
// was ever started, of the shapes that are being asked for. They are built one
// at a time after a sandbox has been given back, each is handed out once, and
// those that nobody wants for a while go.

const (
	readyWindow = time.Minute // what was asked for twice in it gets ready ones
	readyIdle   = 5 * time.Minute
	readyShapes = 16 // so many are remembered
	fillDelay   = 50 * time.Millisecond

	readyBytes = 64 << 20 // of the machine's memory, for each
	readyLeast = 4        // which is always allowed
	readyMost  = 64       // which is always enough: each holds a dozen descriptors
)

// shape is all of a Spec that a sandbox is built by: two of one shape differ in
// their names alone. The tier that is demanded is compared when one is handed out.
type shape struct {
	memory, workBytes, workInodes, tempBytes int64
	cores                                    float64
	tasks                                    int
	cpuTime                                  time.Duration
	stays                                    bool
	dirs, hint, loads                        string
}

func shapeOf(s backend.Spec) shape {
	return shape{s.MemoryBytes, s.WorkBytes, s.WorkInodes, s.TempBytes, s.CPUCores, s.MaxTasks, s.CPUTime, s.Stays, treeKey(s.Trees), s.Hint, s.Loads}
}

// stock is what is known of a shape, and what is ready of it.
type stock struct {
	spec   backend.Spec
	ready  []*sandbox // the oldest first
	last   time.Time  // when it was asked for
	wanted bool       // it was asked for twice within readyWindow
	live   int        // handed out and not given back
	next   prospect   // how the next program in one will probably be started

	since        time.Time // begin of the window of peak
	peak, before int       // most alive at once in this window and the one before
}

// want is how many should be ready: what is in use at once at the most, and one
// because the next is often asked for before the last has been given back. How
// many stay tells nothing of how many come next.
func (s *stock) want() int {
	switch {
	case !s.wanted:
		return 0
	case s.spec.Stays:
		return 1
	}
	return max(s.peak, s.before) + 1
}

// readyPool holds the ready sandboxes of all shapes. A nil one holds none. What
// it gives out of its methods is the caller's, to hand out or to close.
type readyPool struct {
	most int
	idle time.Duration
	now  func() time.Time
	drop func(func() []*sandbox) // closes what the function tells, when the timer says so

	turn sync.Mutex // held by whoever builds one, so that others can wait for it

	mu      sync.Mutex
	stocks  map[shape]*stock
	timer   *time.Timer
	filling bool
	closed  bool
}

func newReadyPool(idle time.Duration, drop func(func() []*sandbox)) *readyPool {
	if idle <= 0 {
		idle = readyIdle
	}
	return &readyPool{most: readyBound(), idle: idle, now: time.Now, drop: drop, stocks: map[shape]*stock{}}
}

// readyBound is how many may be ready on this machine.
func readyBound() int {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return readyLeast
	}
	total := uint64(si.Totalram) * uint64(si.Unit) //nolint:unconvert // differs by architecture
	return int(min(max(total/readyBytes, readyLeast), readyMost))
}

// take notes that a sandbox of the shape is asked for and gives out a ready one.
// The dead are ones whose jail or init has ended meanwhile. Every take is
// followed by one given, when the sandbox that came of it is gone.
func (p *readyPool) take(sh shape, spec backend.Spec) (s *sandbox, dead []*sandbox) {
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	st := p.stocks[sh]
	if st == nil {
		if !p.roomLocked(now) {
			return nil, nil
		}
		st = &stock{spec: spec, since: now}
		p.stocks[sh] = st
	} else if now.Sub(st.last) <= readyWindow {
		st.wanted = true
	}
	st.last = now
	st.live++
	st.turnLocked(now)
	st.peak = max(st.peak, st.live)
	for s == nil && len(st.ready) > 0 {
		last := len(st.ready) - 1
		s = st.ready[last]
		st.ready = slices.Delete(st.ready, last, last+1)
		if s.gone() {
			s, dead = nil, append(dead, s)
		}
	}
	return s, dead
}

// turnLocked begins a new window when the last one is over.
func (s *stock) turnLocked(now time.Time) {
	switch age := now.Sub(s.since); {
	case age > 2*readyWindow:
		s.before, s.peak, s.since = s.live, s.live, now
	case age > readyWindow:
		s.before, s.peak, s.since = s.peak, s.live, now
	}
}

// roomLocked forgets a shape, when there are too many, of which nothing is left.
func (p *readyPool) roomLocked(now time.Time) bool {
	if len(p.stocks) < readyShapes {
		return true
	}
	for sh, st := range p.stocks {
		if st.live == 0 && len(st.ready) == 0 && (!st.wanted || now.Sub(st.last) > readyWindow) {
			delete(p.stocks, sh)
			return true
		}
	}
	return false
}

// given notes that a sandbox that was asked for is gone, or did not come to be.
func (p *readyPool) given(sh shape) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.stocks[sh]; st != nil && st.live > 0 {
		st.live--
	}
}

// start reports that something is to be built and that nobody does it yet.
func (p *readyPool) start() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling || p.lackingLocked() == nil {
		return false
	}
	p.filling = true
	return true
}

// lackingLocked is the shape that was asked for last among those of which there
// is too little.
func (p *readyPool) lackingLocked() *stock {
	if p.closed || p.countLocked() >= p.most {
		return nil
	}
	var found *stock
	for _, st := range p.stocks {
		if len(st.ready) < st.want() && p.now().Sub(st.last) < p.idle && (found == nil || st.last.After(found.last)) {
			found = st
		}
	}
	return found
}

// next tells what to build now; ok is false when there is nothing to, and then
// start has to be asked again.
func (p *readyPool) next() (spec backend.Spec, next prospect, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.lackingLocked()
	if st == nil {
		p.filling = false
		return spec, next, false
	}
	return st.spec, st.next, true
}

// prospect is what can be done for a program before it is asked for: by what the
// last one in a sandbox of the shape was.
type prospect struct {
	fork  string           // key of the zygote that it could be forked from
	load  string           // what the fork loads
	ahead *backend.Process // what could be started ahead; nothing in it is a caller's
}

// expect notes how the last program in a sandbox of the shape could be started.
func (p *readyPool) expect(sh shape, next prospect) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.stocks[sh]; st != nil {
		st.next = next
	}
}

// stop ends the building, when one could not be built.
func (p *readyPool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = false
}

// put keeps a sandbox, and reports false when it is not wanted any more: then it
// is still the caller's.
func (p *readyPool) put(s *sandbox) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stocks[shapeOf(s.spec)]
	if p.closed || st == nil || len(st.ready) >= st.want() || p.countLocked() >= p.most || s.gone() {
		return false
	}
	st.ready = append(st.ready, s)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.idle, func() { p.drop(p.old) })
	}
	return true
}

// old gives out what nobody has wanted for too long, and of the rest what is
// more than is wanted.
func (p *readyPool) old() (gone []*sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	now, wait := p.now(), p.idle
	for sh, st := range p.stocks {
		left := p.idle - now.Sub(st.last)
		if left <= 0 {
			gone = append(gone, st.ready...)
			st.ready = nil
			if st.live == 0 {
				delete(p.stocks, sh)
			}
			continue
		}
		wait = min(wait, left)
		st.turnLocked(now)
		if more := len(st.ready) - st.want(); more > 0 {
			gone = append(gone, st.ready[:more]...)
			st.ready = slices.Delete(st.ready, 0, more)
		}
	}
	if p.countLocked() > 0 && !p.closed {
		p.timer = time.AfterFunc(wait, func() { p.drop(p.old) })
	}
	return gone
}

// of gives out those that stand in a jail, which has ended.
func (p *readyPool) of(h *hall) (gone []*sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.stocks {
		st.ready = slices.DeleteFunc(st.ready, func(s *sandbox) bool {
			if s.hall == h {
				gone = append(gone, s)
			}
			return s.hall == h
		})
	}
	return gone
}

// empty gives out all, and forgets what was asked for. It first waits for one
// that is being built.
func (p *readyPool) empty() (gone []*sandbox) {
	if p == nil {
		return nil
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.stocks {
		gone = append(gone, st.ready...)
	}
	clear(p.stocks)
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	return gone
}

// close is empty, for good.
func (p *readyPool) close() []*sandbox {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.empty()
}

// count is how many are ready.
func (p *readyPool) count() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countLocked()
}

// waiting is in how many of them a process waits.
func (p *readyPool) waiting() (n int) {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.stocks {
		for _, s := range st.ready {
			if s.ahead != nil || s.child != nil {
				n++
			}
		}
	}
	return n
}

func (p *readyPool) countLocked() int {
	n := 0
	for _, st := range p.stocks {
		n += len(st.ready)
	}
	return n
}

// gone reports that nothing lives in a sandbox any more, which has not been closed.
func (s *sandbox) gone() bool { return s.slot.Ended() || s.hall.Ended() }

// fillSoon is fill, when what was asked for now has probably been answered.
func (b *Backend) fillSoon() {
	if b.ready != nil {
		time.AfterFunc(fillDelay, b.fill)
	}
}

// fill builds, beside everything else, what is lacking. It does not return when
// that is done but at once.
func (b *Backend) fill() {
	if !b.ready.start() {
		return
	}
	if !b.begin() {
		b.ready.stop()
		return
	}
	go func() {
		defer b.builds.Done()
		for b.fillOne() {
			runtime.Gosched() // requests go first
		}
	}()
}

// fillOne builds one; false: there is nothing to be built, or it cannot be.
func (b *Backend) fillOne() bool {
	b.ready.turn.Lock()
	defer b.ready.turn.Unlock()
	spec, next, ok := b.ready.next()
	if !ok {
		return false
	}
	h := b.standing(spec.Trees)
	if h == nil { // none is made only for this
		b.ready.stop()
		return false
	}
	s, err := b.build(h, spec, true)
	if err != nil {
		b.log.Debug("no sandbox is made ready", "error", err)
		b.ready.stop()
		return false
	}
	sound := (next.fork == "" || s.readyFork(next.fork, next.load)) && (next.ahead == nil || s.startAhead(*next.ahead))
	if !sound {
		b.ready.stop()
	}
	if !sound || !b.ready.put(s) {
		_ = s.end()
	}
	return sound
}

// standing is a jail in which a sandbox of tier L2 or better has been judged good.
func (b *Backend) standing(trees []backend.Tree) *hall {
	whole, _ := split(trees)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.halls {
		if h.Mode() != jail.ModePlain && h.seen.Load() != nil && h.Covers(whole) {
			return h
		}
	}
	return nil
}

// closeReady closes what a function of the pool gives out, unless the backend
// is being closed and does that itself.
func (b *Backend) closeReady(which func() []*sandbox) {
	if !b.begin() {
		return
	}
	defer b.builds.Done()
	for _, s := range which() {
		_ = s.end()
	}
}

// tryReady hands out a ready sandbox, whose jail the caller leaves; nil when there is
// none.
func (b *Backend) tryReady(spec backend.Spec) *sandbox {
	s, dead := b.ready.take(shapeOf(spec), spec)
	for _, d := range dead {
		_ = d.end()
	}
	if s == nil {
		return nil
	}
	b.mu.Lock()
	stands := slices.Contains(b.halls, s.hall)
	if stands {
		s.hall.enterLocked()
	}
	b.mu.Unlock()
	if !stands { // its jail is being closed
		_ = s.end()
		return nil
	}
	s.spec = spec
	return s
}

// handOut makes a sandbox the caller's. From here on it is watched, and it is
// the caller who closes it.
func (b *Backend) handOut(s *sandbox) error {
	s.asked = true
	if s.spec.Stays { // it may not be given back before the next is asked for
		b.fillSoon()
	}
	if s.group == nil {
		s.watch = startWatch(s.slot, s.hall.Mode(), s.spec)
	}
	b.mu.Lock()
	closed := b.closed
	b.live[s] = struct{}{}
	b.objects.startLocked()
	b.mu.Unlock()
	if closed {
		_ = s.end()
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the process backend is closed")
	}
	return nil
}
