package stream

import "context"

// pump calls a function in its own goroutine whenever there may be new output to pass on.
type pump struct {
	more chan struct{} // gets a token when there may be new output
	done chan struct{} // closed when everything was passed on
}

func newPump() pump { return pump{more: make(chan struct{}, 1), done: make(chan struct{})} }

// nudge signals that there may be new output. It does not block.
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
