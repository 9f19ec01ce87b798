package process

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestNoUseWaitsForTheEndOfASandbox: while the end of a sandbox waits for a use, further uses fail at once. The watch,
// which uses all sandboxes, would otherwise wait for what one of them is waiting for.
func TestNoUseWaitsForTheEndOfASandbox(t *testing.T) {
	s := &sandbox{}
	release, err := s.hold()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		s.use.shut()
		close(ended)
	}()
	failed := func() bool {
		again, err := s.hold()
		if err == nil {
			again()
		}
		return errors.Is(err, fs.ErrClosed)
	}
	testkit.Until(t, "a use fails after the end has begun", failed)
	select {
	case <-ended:
		t.Error("the sandbox has ended during a use")
	default:
	}
	release()
	<-ended
	if !failed() {
		t.Error("a use after the end: it goes on")
	}
}
