package process

import (
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// TestACountDelaysNoRequest: programs can make a count of their sandbox wait. A request that gets the sandbox does
// not wait for that count. If it did, the watch could not end the programs either.
func TestACountDelaysNoRequest(t *testing.T) {
	s := &sandbox{}
	release, err := s.hold() // as the count does
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	given := make(chan struct{})
	go func() {
		defer close(given)
		s.give(backend.Spec{ID: "given"})
	}()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-given:
	case <-limit.C:
		t.Fatal("the request waits for the count")
	}
	if s.spec.ID != "given" {
		t.Errorf("got %q, want the Spec of the request", s.spec.ID)
	}
}
