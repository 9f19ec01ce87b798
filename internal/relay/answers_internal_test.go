package relay

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestARelayAnswersItsNeighbors: where others try whether they reach a container, the relay listens for what does not come over
// loopback, and accepts it. A kernel that refuses the filter, or the port, is no obstacle.
func TestARelayAnswersItsNeighbors(t *testing.T) {
	for name, c := range map[string]struct {
		port   int
		filter int64 // result of the option that sets the filter
		bind   int64
		want   bool
	}{"none": {0, 0, 0, false}, "answers": {8931, 0, 0, true}, "no filters": {8931, -1, 0, true}, "no port": {8931, 0, -98, false}} {
		t.Run(name, func(t *testing.T) {
			const fd = 777
			f, stream := newFake(t, func(p packet) *reported {
				if slices.Contains(p.calls, "listen") && bytes.Contains(p.raw, fromOthers()) {
					return &reported{results: []int64{fd, 0, c.filter, 0, c.bind, c.bind}}
				}
				return nil
			})
			s, err := Open(t.Context(), Config{Stream: stream, Arch: "amd64", Program: "/relay", UID: 1000, Routed: true, Answers: c.port, Remove: func() error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close(t.Context()) })
			accepts := func() bool {
				return slices.ContainsFunc(f.packets(), func(p packet) bool { return p.fd == fd && slices.Contains(p.calls, "accept4") })
			}
			switch {
			case c.want:
				testkit.Until(t, "connections are accepted", accepts)
			case accepts():
				t.Error("the relay accepts connections")
			case c.port != 0 && !f.closed(fd):
				t.Error("the socket stays open")
			}
		})
	}
}
