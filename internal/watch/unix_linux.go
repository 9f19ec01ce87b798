package watch

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
)

// maxWaiting is how many Unix sockets a sandbox may have that send whole messages (SOCK_DGRAM, SOCK_SEQPACKET).
// Any number of them can be connected to one full socket and wait until it has room. Each message that
// is taken from it wakes all of them, with interrupts off. Before Linux 5.15 the kernel counts streams with them.
const maxWaiting = 4096

// maxSockets is how many sockets of all families a sandbox may have. No signal ends a read of /proc/net/unix before
// the kernel has written the list up to the read's offset, and each task can be in such a read.
const maxSockets = 16384

// overUnix returns a description of the sockets of which the sandbox holds too many, or "". A sandbox can make
// Unix sockets without a notice, unlike network sockets.
func (s *Target) overUnix() string {
	if s.Plain { // its network namespace is the host's, and its programs cannot make sockets
		return ""
	}
	used := usedSockets(s.readNet("sockstat"))
	switch {
	case used > maxSockets:
		// Connections may have become too many since they were counted, which says more.
		return cmp.Or(overConnections(s.readNet("sockstat"), s.readNet("sockstat6")), fmt.Sprintf("more than %d sockets", maxSockets))
	case used > maxWaiting && ofProtocol(s.readNet("protocols"), "UNIX") > maxWaiting:
		return fmt.Sprintf("more than %d Unix sockets for messages", maxWaiting)
	}
	return ""
}

// ofProtocol returns the number of sockets of a protocol from a text in the form of /proc/net/protocols.
func ofProtocol(text []byte, protocol string) int {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 2 && string(f[0]) == protocol {
			n, _ := strconv.Atoi(string(f[2]))
			return n
		}
	}
	return 0
}
