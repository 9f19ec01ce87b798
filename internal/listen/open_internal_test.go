package listen

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestLinkHost(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	for _, c := range []struct {
		asked, bound string
		own          []netip.Addr
		want         string
	}{
		{"127.0.0.1", "127.0.0.1", []netip.Addr{four}, "127.0.0.1"},
		{"localhost", "127.0.0.1", []netip.Addr{four}, "localhost"},
		{"192.0.2.9", "192.0.2.9", []netip.Addr{four}, "192.0.2.9"},
		{"0.0.0.0", "0.0.0.0", []netip.Addr{six, four}, "192.0.2.7"},
		{"0.0.0.0", "::", []netip.Addr{six, four}, "192.0.2.7"}, // as Linux has it
		{"0.0.0.0", "::", []netip.Addr{six}, "2001:db8::7"},
		{"0.0.0.0", "::", nil, "127.0.0.1"},
		{"::", "::", []netip.Addr{four, six}, "2001:db8::7"},
		{"::", "::", []netip.Addr{four}, "192.0.2.7"},
		{"::", "::", nil, "::1"},
	} {
		if got := linkHost(c.asked, netip.MustParseAddr(c.bound), func() []netip.Addr { return c.own }); got != c.want {
			t.Errorf("listening on %s (%s) with %v: links name %s, want %s", c.asked, c.bound, c.own, got, c.want)
		}
	}
	for _, a := range ownAddresses() {
		if a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.Zone() != "" {
			t.Errorf("got %s, want only addresses that others may reach", a)
		}
	}
}

// short is a listener whose first Accept fails as it does when epoll watches are used up.
type short struct {
	net.Listener
	failed atomic.Bool
}

func (s *short) Accept() (net.Conn, error) {
	if s.failed.CompareAndSwap(false, true) {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("epoll_ctl", syscall.ENOSPC)}
	}
	return s.Listener.Accept()
}

// TestADoorOutlivesAFailedAccept: after a lack of descriptors or watches the server accepts
// connections again.
func TestADoorOutlivesAFailedAccept(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newBounded(&short{Listener: inner}, 1)
	s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+inner.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		t.Fatalf("got %v after a failed Accept, want an answer", err)
	}
	_ = resp.Body.Close()
}
