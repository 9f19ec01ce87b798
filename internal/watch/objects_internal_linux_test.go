package watch

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

// TestLocksAreCountedByProcess reads the form of /proc/locks: a lock that waits counts for
// the process that waits, and open file description locks have no process.
func TestLocksAreCountedByProcess(t *testing.T) {
	const text = `1: POSIX  ADVISORY  WRITE 42 00:1b:5 0 EOF
1: -> POSIX  ADVISORY  WRITE 43 00:1b:5 0 EOF
2: FLOCK  ADVISORY  READ 42 08:01:77 0 EOF
3: OFDLCK ADVISORY  READ -1 08:01:78 0 9
4: LEASE  ACTIVE    READ 44 08:01:78 0 EOF
torn
`
	got := countLocks(strings.NewReader(text), nil)
	if want := map[int]int{42: 1, 43: 1, -1: 1, 44: 1}; !maps.Equal(got.byPID, want) || got.lines != 5 {
		t.Errorf("got %v in %d lines, want %v in 5", got.byPID, got.lines, want)
	}
}

// TestLockThatIsToldTwiceCountsOnce: while another process takes locks, the kernel tells
// the same ones again under other numbers.
func TestLockThatIsToldTwiceCountsOnce(t *testing.T) {
	var text strings.Builder
	for i := range lockLines + 9 {
		fmt.Fprintf(&text, "%d: POSIX  ADVISORY  WRITE 42 00:1b:5 %d %d\n", i, i%2000, i%2000)
	}
	got := countLocks(strings.NewReader(text.String()), nil)
	if got.byPID[42] != 2000 || got.lines != lockLines {
		t.Errorf("got %d locks in %d lines, want 2000 in %d", got.byPID[42], got.lines, lockLines)
	}
}

// TestSocketsAreRead reads the forms of /proc/net/sockstat and /proc/net/tcp.
func TestSocketsAreRead(t *testing.T) {
	sums := []byte("sockets: used 290\nTCP: inuse 41 orphan 0 tw 3 alloc 44 mem 2\nUDP: inuse 7 mem 0\nUDPLITE: inuse 1\n")
	if tcp, udp := inUse(sums, "TCP"), inUse(sums, "UDP"); tcp != 41 || udp != 7 {
		t.Errorf("got %d and %d sockets, want 41 and 7", tcp, udp)
	}
	if used, pages := usedSockets(sums), allQueued(sums)/int64(os.Getpagesize()); used != 290 || pages != 2 {
		t.Errorf("got %d sockets of all families and %d pages, want 290 and 2", used, pages)
	}
	protocols := []byte("protocol  size sockets  memory press maxhdr\nUNIX 1152 200 -1 NI 0 yes\nUDP 1344 7 45 NI 0 yes\nTCP 2304 41 234 no 192 yes\n")
	if got := listed(protocols); got != 248 {
		t.Errorf("got %d sockets in lists, want 248", got)
	}
	if got := ofProtocol(protocols, "UNIX"); got != 200 {
		t.Errorf("got %d Unix sockets, want 200", got)
	}
	v6 := []byte("TCP6: inuse 12\nUDP6: inuse 3\nUDPLITE6: inuse 1\nRAW6: inuse 0\n")
	if tcp, udp := inUse(v6, "TCP6"), inUse(v6, "UDP6"); tcp != 12 || udp != 3 {
		t.Errorf("got %d and %d sockets of IPv6, want 12 and 3", tcp, udp)
	}
	for udp, want := range map[string]string{"4093": "", "4094": "more than 4096 UDP sockets"} {
		if got := overConnections([]byte("UDP: inuse "+udp+" mem 0\n"), v6); got != want {
			t.Errorf("%s UDP sockets and 3 of IPv6: got %q, want %q", udp, got, want)
		}
	}
	list := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000010:00000020 00:00000000 00000000  1000        0 12 1 0000000000000000
   1: 0100007F:1F91 00000000:0000 01 00001000:00000000 00:00000000 00000000  1000        0 13 1 0000000000000000
`
	if got := queued(strings.NewReader(list), nil); got != 0x1030 {
		t.Errorf("got %d bytes, want %d", got, 0x1030)
	}
	v6List := "  sl  local_address                         remote_address st tx_queue rx_queue\n" +
		"   9: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 07 00000000:00000000\n"
	ports := map[string]int{}
	queued(strings.NewReader(list), ports)
	if queued(strings.NewReader(v6List), ports); mostOf(ports) != 2 {
		got := mostOf(ports)
		t.Errorf("got %d sockets of one port, want 2", got)
	}
}

// TestListsOfSocketsTakeNoMoreThanTheirShare: the kernel takes long to list thousands of sockets. But it is asked if much is
// queued.
func TestListsOfSocketsTakeNoMoreThanTheirShare(t *testing.T) {
	s := &Target{}
	if s.lists(maxOnePort, fewSockets-1, 1<<40) || !s.lists(maxOnePort+1, 0, 0) || !s.lists(0, fewSockets, 0) {
		t.Error("few sockets are listed, or many are not")
	}
	s.socketsFrom = time.Now().Add(time.Hour)
	if s.lists(9000, 9000, maxQueued-1) || s.counted >= 0 {
		t.Errorf("during a rest: sockets are listed, or not counted at the next look (%v)", s.counted)
	}
	if !s.lists(9000, 9000, maxQueued) {
		t.Error("during a rest, while much is queued: sockets are not listed")
	}
}

// TestOwnerIsFoundByAncestry: a process belongs to the sandbox whose init is among its parents.
func TestOwnerIsFoundByAncestry(t *testing.T) {
	parent, err := parentOf(1)
	if err != nil || parent != 0 {
		t.Errorf("parent of process 1: got %d, %v, want 0", parent, err)
	}
	s := &Target{}
	if got := ownerOf(7, map[int]*Target{7: s}, parentOf); got != s {
		t.Error("an init itself: got another owner")
	}
	if got := ownerOf(1, map[int]*Target{7: s}, parentOf); got != nil {
		t.Error("process 1: got an owner, want none")
	}
}

// TestParentsAreReadOnce: in a chain of processes, each the parent of the next, all may hold locks. If all parents of each
// were read, the watch would have no time to count other sandboxes.
func TestParentsAreReadOnce(t *testing.T) {
	const processes = 6000
	read := 0
	parent := func(pid int) (int, error) {
		if read++; pid == 20_000 {
			return 1, nil
		}
		return pid - 1, nil
	}
	s := &Target{}
	known := map[int]*Target{9: s}
	for _, first := range []int{10, 20_000} { // a chain of the sandbox, and one of no sandbox
		for pid := first + processes - 1; pid >= first; pid-- {
			if got := ownerOf(pid, known, parent); (got == s) != (first == 10) {
				t.Fatalf("process %d: got owner %p, want that of its chain", pid, got)
			}
		}
	}
	if read > 2*processes {
		t.Errorf("parents were read %d times, want once for each of %d processes", read, 2*processes)
	}
}

// TestOnlySandboxesThatRunAreCounted: a sandbox is counted again after it has used CPU
// time, at once if that is not known, and at the next look if it holds too many.
func TestOnlySandboxesThatRunAreCounted(t *testing.T) {
	s, now := &Target{}, time.Now()
	for range 2 {
		if !s.hasRun() {
			t.Error("without a control group: got a sandbox that is not counted")
		}
	}
	for _, c := range []struct {
		name  string
		used  time.Duration
		known bool
		after time.Duration
		want  bool
	}{
		{"nothing has run", 0, true, time.Hour, false},
		{"a program has run", idleCPU, true, time.Hour, true},
		{"nothing has run since", idleCPU, true, 2 * time.Hour, false},
		{"a little", idleCPU + 1, true, time.Hour + idleLong - 1, false},
		{"a little, long ago", idleCPU + 1, true, time.Hour + idleLong, true},
		{"less, by another group", idleCPU, true, time.Hour + idleLong, true},
		{"not known", 0, false, time.Hour + idleLong, true},
	} {
		if got := s.hasUsed(c.used, c.known, now.Add(c.after)); got != c.want {
			t.Errorf("%s: got %t, want %t", c.name, got, c.want)
		}
	}
	s.counted = -idleCPU
	if !s.hasUsed(0, true, now) {
		t.Error("it held too many: got a sandbox that is not counted again")
	}
}
