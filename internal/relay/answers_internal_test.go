package relay

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestARelayAnswersItsNeighbors: where others try whether they reach a container, the relay listens for what does not come over
// loopback, and accepts it. It takes the port at one address alone. A kernel that refuses the filter, or the port, is no obstacle.
func TestARelayAnswersItsNeighbors(t *testing.T) {
	const at = "10.0.1.2:8931"
	for name, c := range map[string]struct {
		at     string
		filter int64 // result of the option that sets the filter
		bind   int64
		want   bool
	}{"none": {"", 0, 0, false}, "answers": {at, 0, 0, true}, "no filters": {at, -1, 0, true}, "no port": {at, 0, -98, false}} {
		t.Run(name, func(t *testing.T) {
			const fd = 777
			f, stream := newFake(t, func(p packet) *reported {
				if slices.Contains(p.calls, "listen") && bytes.Contains(p.raw, fromOthers()) && bytes.Contains(p.raw, sockaddr([4]byte{10, 0, 1, 2}, 8931)) {
					return &reported{results: []int64{fd, 0, c.filter, 0, c.bind, c.bind}}
				}
				return nil
			})
			answers, _ := netip.ParseAddrPort(c.at)
			s, err := Open(t.Context(), Config{Stream: stream, Arch: "amd64", Program: "/relay", UID: 1000, Routed: true, Answers: answers, Remove: func() error { return nil }})
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
			case c.at != "" && !f.closed(fd):
				t.Error("the socket stays open")
			}
		})
	}
}

// TestARelayGoesOnToAnswer: a connection that cannot be accepted is not the last one that others try. A pod whose queue is full looks
// closed to them.
func TestARelayGoesOnToAnswer(t *testing.T) {
	const fd, noDescriptors = 777, -24
	f, stream := newFake(t, func(p packet) *reported {
		switch {
		case slices.Contains(p.calls, "listen") && bytes.Contains(p.raw, fromOthers()):
			return &reported{results: []int64{fd, 0, 0, 0, 0, 0}}
		case p.fd == fd:
			return &reported{results: slices.Repeat([]int64{noDescriptors}, len(p.calls))}
		}
		return nil
	})
	s, err := Open(t.Context(), Config{Stream: stream, Arch: "amd64", Program: "/relay", UID: 1000, Routed: true, Answers: netip.MustParseAddrPort("10.0.1.2:8931"), Remove: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	testkit.Until(t, "connections are accepted after a failure", func() bool {
		tried := 0
		for _, p := range f.packets() {
			if p.fd == fd {
				tried++
			}
		}
		return tried > 1
	})
}
