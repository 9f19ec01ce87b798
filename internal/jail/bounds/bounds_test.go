package bounds_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

func TestOnlyLoopback(t *testing.T) {
	const head = "Inter-|   Receive\n face |bytes\n"
	for devices, want := range map[string]bool{
		"": false, head: false, head + "    lo: 0 0\n": true, head + "    lo: 0 0\n  eth0: 0 0\n": false, head + " eth0:0\n": false, "eth0: 0\n": false,
	} {
		if got := bounds.OnlyLoopback(devices); got != want {
			t.Errorf("%q: got %t, want %t", devices, got, want)
		}
	}
}

// TestPlacesAreBounded: no place is without a limit, not even one of no size.
func TestPlacesAreBounded(t *testing.T) {
	for _, p := range bounds.Places(0, 0, 0) {
		if p.Bytes <= 0 || p.Files <= 0 {
			t.Errorf("got %+v, want limits", p)
		}
	}
	work := bounds.Places(1<<20, 9, 1<<10)[0]
	if got, want := work.EngineOptions(), "rw,exec,nosuid,nodev,mode=700,size=1048576,nr_inodes=10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	shm := bounds.Places(1<<20, 9, 1<<10)[2]
	if got, want := shm.EngineOptions(), "rw,noexec,nosuid,nodev,mode=1777,size=4096,nr_inodes=1001"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
