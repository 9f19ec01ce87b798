package relay

import (
	"context"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestABusyRelayHidesNoNetwork: an address counts as reached if the container has connected to it, however late the relay
// begins and says so. That it was not reached is only said of an attempt that had its time.
func TestABusyRelayHidesNoNetwork(t *testing.T) {
	const silent, refused, none = 1 << 20, -int64(syscall.ECONNREFUSED), -int64(syscall.ENOTCONN)
	for name, c := range map[string]struct {
		begun, late int64 // results of connect, and of the question for its end
		peer        int64 // result of getpeername
		want        bool
	}{
		"late begin":           {0, 0, 0, true},
		"the end is told":      {-int64(syscall.EINPROGRESS), 0, none, true},
		"the end is not told":  {-int64(syscall.EINPROGRESS), silent, 0, true},
		"packets are dropped":  {-int64(syscall.EINPROGRESS), silent, none, false},
		"packets are rejected": {refused, silent, none, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := openFake(t, func(p packet) *reported {
					switch {
					case slices.Contains(p.calls, "connect"):
						time.Sleep(10 * time.Second)
						return &reported{results: []int64{7777, c.begun}}
					case slices.Contains(p.calls, "getsockopt") && c.late != silent:
						return &reported{results: []int64{0, c.late}, bytes: make([]byte, 16)}
					case slices.Contains(p.calls, "getpeername"):
						return &reported{results: []int64{0, c.peer}, bytes: make([]byte, 24)}
					}
					return nil
				})
				got, err := s.Reaches(t.Context(), netip.MustParseAddrPort("192.0.2.1:443"), time.Second)
				if err != nil || got != c.want {
					t.Errorf("got %v %v, want %v", got, err, c.want)
				}
				synctest.Wait()
				if !f.closed(7777) {
					t.Error("the socket stays open")
				}
			})
		})
	}
}

// TestAnEndedAttemptSaysNothing: a caller that gives up does not hear that the network is closed.
func TestAnEndedAttemptSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openFake(t, func(p packet) *reported {
			if slices.Contains(p.calls, "connect") {
				return &reported{results: []int64{7777, -int64(syscall.EINPROGRESS)}}
			}
			if slices.Contains(p.calls, "getpeername") {
				return &reported{results: []int64{0, -int64(syscall.ENOTCONN)}, bytes: make([]byte, 24)}
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if got, err := s.Reaches(ctx, netip.MustParseAddrPort("192.0.2.1:443"), time.Second); err == nil {
			t.Errorf("got %v and no error", got)
		}
	})
}

// TestADNSServerThatAnswersIsNoticed: an answer counts that is there when the time is over. A refusal and silence do not.
func TestADNSServerThatAnswersIsNoticed(t *testing.T) {
	const silent, refused, nothing = 1 << 20, -int64(syscall.ECONNREFUSED), -int64(syscall.EAGAIN)
	for name, c := range map[string]struct {
		waited, last int64 // results of the reads
		want         bool
	}{
		"an answer":            {1, nothing, true},
		"an answer, late told": {silent, 1, true},
		"packets are dropped":  {silent, nothing, false},
		"packets are rejected": {refused, nothing, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := openFake(t, func(p packet) *reported {
					switch {
					case slices.Contains(p.calls, "connect"):
						return &reported{results: []int64{7777, 0, 17}}
					case p.fd == 7777 && c.waited != silent:
						return &reported{results: []int64{c.waited}, bytes: make([]byte, max(c.waited, 0))}
					case p.fd < 0 && slices.Contains(p.calls, "read") && p.first[0] == 7777:
						return &reported{results: []int64{c.last}, bytes: make([]byte, 1)}
					}
					return nil
				})
				got, err := s.Resolves(t.Context(), netip.MustParseAddrPort("192.0.2.1:53"), time.Second)
				if err != nil || got != c.want {
					t.Errorf("got %v %v, want %v", got, err, c.want)
				}
				synctest.Wait()
				if !f.closed(7777) {
					t.Error("the socket stays open")
				}
			})
		})
	}
}

// TestRootsGroupIsNoticed: a program that has root's group besides its own is no ordinary user.
func TestRootsGroupIsNoticed(t *testing.T) {
	for groups, want := range map[string]bool{"": true, "1000": true, "6 1000": true, "0": false, "0 6 1000": false} {
		s := Seen{Status: map[string]string{"Uid": "1000\t1000\t1000\t1000", "Gid": "1000\t1000\t1000\t1000", "Groups": groups}}
		if got := s.Unprivileged(1000); got != want {
			t.Errorf("groups %q: got %v, want %v", groups, got, want)
		}
	}
}

// TestAQuestionThatCannotBeAskedIsNotWaitedFor: without a route no answer can come.
func TestAQuestionThatCannotBeAskedIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := openFake(t, func(p packet) *reported {
			if slices.Contains(p.calls, "connect") {
				return &reported{results: []int64{7777, -int64(syscall.ENETUNREACH), -int64(syscall.EDESTADDRREQ)}}
			}
			return nil
		})
		begun := time.Now()
		got, err := s.Resolves(t.Context(), netip.MustParseAddrPort("192.0.2.1:53"), time.Second)
		if waited := time.Since(begun); got || err != nil || waited != 0 {
			t.Errorf("got %v %v after %s, want no answer at once", got, err, waited)
		}
		synctest.Wait()
		if !f.closed(7777) {
			t.Error("the socket stays open")
		}
	})
}
