package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// openAs opens a sandbox of a fake relay with a user, whose kernel has a version of Landlock.
func openAs(t *testing.T, uid, landlock int64, change func(*Config)) (*Sandbox, *fake) {
	t.Helper()
	f, stream := newFake(t, func(p packet) *reported {
		if len(p.calls) == 2 && p.calls[0] == "geteuid" {
			return &reported{results: []int64{uid, landlock}}
		}
		return nil
	})
	cfg := Config{Stream: stream, Arch: seccomp.AMD64, Program: "/relay", Spec: backend.Spec{MemoryBytes: 1 << 30, WorkBytes: 1 << 20, MaxTasks: 32}, UID: 1000, Remove: func() error { return nil }}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s, f
}

// called returns the names of the calls of packets of a kind, as far as the fake knows them.
func called(f *fake, kind byte) []string {
	var all []string
	for _, p := range f.packets() {
		if p.kind == kind {
			all = append(all, p.calls...)
		}
	}
	return all
}

func count(all []string, name string) (n int) {
	for _, c := range all {
		if c == name {
			n++
		}
	}
	return n
}

// TestRelayWithoutRights: where the relay has the user of programs, it changes no user and makes no addresses,
// and programs get Landlock before their filter.
func TestRelayWithoutRights(t *testing.T) {
	s, f := openAs(t, 70_000, 7, func(c *Config) { c.Routed = true })
	if !s.standing.shared || s.standing.uid != 70_000 {
		t.Errorf("got %+v, want the user 70000, shared", s.standing)
	}
	for _, name := range []string{"setgroups", "setresgid", "setresuid", "capset", "recvfrom", "fchmodat"} {
		if n := count(called(f, 'Y'), name); n != 0 {
			t.Errorf("the relay has called %s %d times, want never", name, n)
		}
	}
	prelude := called(f, 'F')
	if count(prelude, "landlock_restrict_self") != 1 || count(prelude, "landlock_add_rule") < 5 {
		t.Errorf("got %q before each program, want Landlock", prelude)
	}
	for _, p := range f.packets() {
		for i, name := range p.calls {
			if name != "bind" {
				continue
			}
			at := binary.LittleEndian.Uint64(p.raw[listHead+callSize*i+16+8:])
			if addr := p.raw[at+4 : at+8]; !slices.Equal(addr, []byte{127, 0, 0, 1}) {
				t.Errorf("a socket is bound to %v, want loopback alone", addr)
			}
		}
	}
}

// TestRelayOfAContainer: a relay that is root changes its user, and gives loopback the addresses of names and all
// others, in eight networks. Programs get Landlock.
func TestRelayOfAContainer(t *testing.T) {
	_, f := openAs(t, 0, 7, nil)
	if n := count(called(f, 'Y'), "setresuid"); n != 1 {
		t.Errorf("the relay has changed its user %d times, want once", n)
	}
	if n := count(called(f, 'Y'), "recvfrom"); n != 9 {
		t.Errorf("%d networks, want 9", n)
	}
	if prelude := called(f, 'F'); count(prelude, "landlock_restrict_self") != 1 {
		t.Errorf("got %q before each program, want Landlock", prelude)
	}
}

// TestARoutedContainerHasNoIPv6: where a container has an interface, the filter of programs refuses sockets of IPv6. What
// closes a network of IPv4 does not close the link's own addresses of IPv6.
func TestARoutedContainerHasNoIPv6(t *testing.T) {
	for _, routed := range []bool{true, false} {
		_, f := openAs(t, 70_000, 7, func(c *Config) { c.Routed = routed })
		want, err := seccomp.Compile(seccomp.New(seccomp.Variant{Scratch: true, NoIPv6: routed}), seccomp.AMD64)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(f.packets(), func(p packet) bool { return p.kind == 'F' && bytes.Contains(p.raw, want) }) {
			t.Errorf("routed %v: programs do not get the filter, want one without IPv6 in a routed container only", routed)
		}
	}
}

// TestRelayOfARoutedContainer: a relay that is root of a container with an interface makes only the addresses of
// names, because the others would lead its own stream astray. Programs get Landlock.
func TestRelayOfARoutedContainer(t *testing.T) {
	_, f := openAs(t, 0, 7, func(c *Config) { c.Routed = true })
	if n := count(called(f, 'Y'), "recvfrom"); n != 1 {
		t.Errorf("%d addresses, want 1", n)
	}
	if prelude := called(f, 'F'); count(prelude, "landlock_restrict_self") != 1 {
		t.Errorf("got %q before each program, want Landlock", prelude)
	}
}

// TestNoLandlockIsNotClaimed: a kernel without it gives programs none.
func TestNoLandlockIsNotClaimed(t *testing.T) {
	s, f := openAs(t, 70_000, -38, nil)
	if s.standing.landlock != 0 || count(called(f, 'F'), "landlock_create_ruleset") != 0 {
		t.Errorf("got %+v and %q", s.standing, called(f, 'F'))
	}
}

// TestTasksOfASharedUser: where other sandboxes have the user, the number of its tasks is not limited.
func TestTasksOfASharedUser(t *testing.T) {
	limits := func(shared bool) int {
		_, f := openAs(t, 70_000, 7, func(c *Config) { c.UserOfOthers = shared })
		return count(called(f, 'F'), "prlimit64")
	}
	if own, shared := limits(false), limits(true); own != shared+1 {
		t.Errorf("got %d limits with a user of its own and %d with a shared one, want one less", own, shared)
	}
}

// TestARefusedLookEndsOpen: a relay that cannot say who it is makes no sandbox.
func TestARefusedLookEndsOpen(t *testing.T) {
	_, stream := newFake(t, func(p packet) *reported {
		if len(p.calls) == 2 && p.calls[0] == "geteuid" {
			return &reported{results: []int64{-1, 0}}
		}
		return nil
	})
	_, err := Open(t.Context(), Config{Stream: stream, Arch: seccomp.AMD64, UID: 1000})
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v, want %v", err, syscall.EPERM)
	}
}

// TestRelayOfOthers: if a container shares its pid or network namespace with other processes, the relay changes nothing.
func TestRelayOfOthers(t *testing.T) {
	for _, c := range []struct {
		name, devices string
		pid           int64
		routed        bool
		want          string
	}{
		{"process ids", "lo: 0\n", 4711, false, "not process 1"},
		{"process ids in a pod", "lo: 0\n", 7, true, "not process 1"},
		{"network", "lo: 0\neth0: 0\n", 1, false, "besides loopback"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, stream := newFake(t, func(p packet) *reported {
				switch {
				case slices.Contains(p.calls, "getpid"):
					return &reported{results: []int64{c.pid}}
				case bytes.Contains(p.raw, []byte("/proc/net/dev")):
					return &reported{results: []int64{3, int64(len(c.devices)), 0}, bytes: []byte(c.devices)}
				}
				return nil
			})
			_, err := Open(t.Context(), Config{Stream: stream, Arch: seccomp.AMD64, Program: "/relay", UID: 1000, Routed: c.routed, Remove: func() error { return nil }})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want that it %s", err, c.want)
			}
			for _, p := range f.packets() {
				if p.kind != 'Y' || slices.Contains(p.calls, "socket") || slices.Contains(p.calls, "setresuid") {
					t.Errorf("the relay got %c %v, want nothing that changes anything", p.kind, p.calls)
				}
			}
		})
	}
}
