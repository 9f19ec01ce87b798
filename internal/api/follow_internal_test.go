package api

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestFollowersLeavePlaces: callers who take as many places as they get keep no other one from its first.
func TestFollowersLeavePlaces(t *testing.T) {
	f := followers{each: maxFollowEach}
	for i := range 20 {
		actor := fmt.Sprint("caller ", i)
		for n := range maxFollowEach + 1 {
			_, err := f.enter(actor)
			if n == 0 && err != nil && i < 8 {
				t.Fatalf("%s: got %v, want a place", actor, err)
			}
			if n == maxFollowEach && sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
				t.Fatalf("%s: got %v, want no more places", actor, err)
			}
		}
	}
	if f.count() != maxFollow {
		t.Errorf("got %d followers, want all %d places taken", f.count(), maxFollow)
	}
	whole := followers{each: maxFollow}
	for range maxFollow {
		if _, err := whole.enter("cli"); err != nil {
			t.Fatal(err)
		}
	}
}
