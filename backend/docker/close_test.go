package docker_test

import (
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// TestCloseRemovesContainersThatAreMade: a backend that is closed while it makes containers for later
// leaves none behind, neither running nor never started.
func TestCloseRemovesContainersThatAreMade(t *testing.T) {
	api := engine(t)
	for name, c := range map[string]struct {
		backend func() backend.Backend
		rounds  int
	}{
		"runc":  {func() backend.Backend { return newBackend(t) }, 5},
		"runsc": {func() backend.Backend { return newRelayed(t) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.rounds {
				b := c.backend()
				for range 2 {
					sb, err := b.Open(t.Context(), spec("closing"))
					if err != nil {
						t.Fatal(err)
					}
					if i%2 == 0 {
						if err = sb.Close(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
				pause(t, time.Duration(i)*100*time.Millisecond) // so that Close meets them at different times
				if err := b.Close(t.Context()); err != nil {
					t.Errorf("close: %v", err)
				}
				if ids := ours(t, api); len(ids) != 0 {
					t.Fatalf("round %d: %d containers are left, want none", i, len(ids))
				}
			}
		})
	}
}
