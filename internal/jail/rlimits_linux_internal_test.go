package jail

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoProgramIsRealTime: programs do not inherit the server's limits of priority, which an
// operator may have raised. Where that is so cannot be tried without the right to raise them.
func TestNoProgramIsRealTime(t *testing.T) {
	s := &script{}
	s.rlimits(plan{})
	set := map[uint64]uint64{}
	for _, c := range s.calls {
		if c.nr == unix.SYS_PRLIMIT64 {
			set[c.arg[1]] = binary.LittleEndian.Uint64(s.data[c.arg[2]+8:]) // the hard limit
		}
	}
	for _, which := range []uint64{unix.RLIMIT_RTPRIO, unix.RLIMIT_NICE} {
		if v, there := set[which]; !there || v != 0 {
			t.Errorf("limit %d: got %d, %v, want 0", which, v, there)
		}
	}
}
