package stream

import "context"

// pump calls a function in a goroutine of its own whenever there may be something
// for it to pass on.
type pump struct {
	more chan struct{} // there may be something
	done chan struct{} // closed when everything was passed on
}

func newPump() pump { return pump{more: make(chan struct{}, 1), done: make(chan struct{})} }

// nudge says that there may be something to pass on. It does not wait.
func (p pump) nudge() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// run calls pass after each nudge, until it reports that everything was passed on.
func (p pump) run(pass func() (over bool)) {
	defer close(p.done)
	for !pass() {
		<-p.more
	}
}

// flush waits until run returns, or ctx ends.
func (p pump) flush(ctx context.Context) {
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}
