package watch

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// openNet opens a file of the sandbox's network namespace. It returns nil if it cannot. What is read of the file is that of
// the sandbox also after its end.
func (s *Target) openNet(name string) *os.File {
	release, err := s.Hold()
	if err != nil {
		return nil
	}
	defer release()
	f, err := os.Open("/proc/" + strconv.Itoa(s.Slot.PID()) + "/net/" + name)
	if err != nil {
		return nil
	}
	if s.Slot.Ended() { // its pid may belong to another process now
		_ = f.Close()
		return nil
	}
	return f
}

// readNet reads a file of the sandbox's network namespace. It returns nil if it cannot.
func (s *Target) readNet(name string) []byte {
	f := s.openNet(name)
	if f == nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxNetFile))
	if err != nil {
		return nil
	}
	return text
}

// overConnections returns a description if the sandbox has too many TCP or UDP sockets, or "".
func overConnections(v4, v6 []byte) string {
	switch {
	case inUse(v4, "TCP")+inUse(v6, "TCP6") > maxConnections:
		return fmt.Sprintf("more than %d TCP connections", maxConnections)
	case inUse(v4, "UDP")+inUse(v6, "UDP6") > maxDatagrams:
		return fmt.Sprintf("more than %d UDP sockets", maxDatagrams)
	}
	return ""
}

// overSockets returns a description of the sockets of which the sandbox holds too many, or "". It reads the lists of sockets
// beside the counts of other sandboxes, because that takes long: for each page of a list, the kernel searches the list from
// its beginning. While the sandbox is ahead of its share of the server's time, overSockets does not read them, unless much is
// queued on the host.
func (s *Target) overSockets(o *Objects) string {
	if s.Plain || !s.Slot.MayHaveSockets() { // programs at tier L1 cannot make sockets
		return ""
	}
	v4, v6 := s.readNet("sockstat"), s.readNet("sockstat6")
	if excess := overConnections(v4, v6); excess != "" {
		return excess
	}
	tcp, udp := inUse(v4, "TCP")+inUse(v6, "TCP6"), inUse(v4, "UDP")+inUse(v6, "UDP6")
	hidden := 0
	if tcp+udp+fewSockets < usedSockets(v4) { // some may be of the Unix family
		hidden = s.unlisted()
	}
	if s.Group != nil { // the cgroup counts what TCP queues, and what UDP queues except errors and timestamps
		tcp = 0
	}
	if s.sockets.idle() && !s.lists(udp, tcp+udp+hidden, allQueued(v4)) {
		return ""
	}
	count, done := ask(o, s, &s.sockets, "sockets", func() string { return s.excessOfSockets(tcp+udp+hidden, hidden, allQueued(v4)) })
	if !done {
		s.counted = -idleCPU // count it again
		return ""
	}
	s.socketsFrom = time.Now().Add(min(s.Spend(count.took), mostRest))
	return count.value
}

// lists reports whether the lists of sockets have to be read. udp is the number of UDP sockets, all that of all sockets in
// question, and onHost the bytes that wait in all sockets of the host.
func (s *Target) lists(udp, all int, onHost int64) bool {
	if udp <= maxOnePort && all < fewSockets {
		return false
	}
	if time.Now().Before(s.socketsFrom) && onHost < maxQueued {
		s.counted = -idleCPU // count it again
		return false
	}
	return true
}

// excessOfSockets is overSockets for a number of sockets, all. Of these, hidden are in no list. onHost has the bytes that wait
// in all sockets of the host.
func (s *Target) excessOfSockets(all, hidden int, onHost int64) string {
	lists, most := []string{"udp", "udp6"}, int64(2*maxQueued)
	sum := int64(hidden) * maxCorked
	if s.Group == nil {
		lists, most = append(lists, "tcp", "tcp6"), maxQueued
		sum += min(int64(hidden)*maxEach, onHost)
	}
	ports := map[string]int{}
	for i, name := range lists {
		if i == 2 {
			ports = nil // of TCP
		}
		if f := s.openNet(name); f != nil {
			sum += queued(io.LimitReader(f, maxNetFile), ports)
			_ = f.Close()
		}
		if n := mostOf(ports); n > maxOnePort {
			return fmt.Sprintf("more than %d UDP sockets of one port", maxOnePort)
		}
	}
	if all >= fewSockets && sum > most {
		return fmt.Sprintf("more than %d MiB in connections", most>>20)
	}
	return ""
}

// unlisted returns how many sockets of the sandbox are in no list of their protocol. A socket
// leaves the list when its connection ends or is aborted, and keeps its queued bytes.
func (s *Target) unlisted() int {
	protocols := s.readNet("protocols")
	return max(0, usedSockets(s.readNet("sockstat"))-listed(protocols)) // sockets may be closed between the two reads
}

// listed adds up the sockets of a text in the form of /proc/net/protocols.
func listed(text []byte) (sum int) {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 2 {
			n, _ := strconv.Atoi(string(f[2])) // the heading of the table is not a number
			sum += n
		}
	}
	return sum
}

// usedSockets returns the number of sockets of all families from a text in the form of
// /proc/net/sockstat.
func usedSockets(text []byte) int {
	_, rest, _ := bytes.Cut(text, []byte("sockets: used "))
	n, _, _ := bytes.Cut(rest, []byte("\n"))
	used, _ := strconv.Atoi(string(n))
	return used
}

// allQueued returns how many bytes wait in the sockets of the whole host from a text in
// the form of /proc/net/sockstat.
func allQueued(text []byte) (sum int64) {
	for line := range bytes.Lines(text) {
		if _, pages, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" mem ")); ok {
			n, _ := strconv.ParseInt(string(pages), 10, 64)
			sum += n * int64(os.Getpagesize())
		}
	}
	return sum
}

// inUse returns the number of sockets of a protocol from a text in the form of
// /proc/net/sockstat or sockstat6, which counts those of IPv6.
func inUse(text []byte, protocol string) int {
	_, rest, ok := bytes.Cut(append([]byte("\n"), text...), []byte("\n"+protocol+": inuse "))
	if f := bytes.Fields(rest); ok && len(f) > 0 {
		n, _ := strconv.Atoi(string(f[0]))
		return n
	}
	return 0
}

// queued adds up the bytes that wait in the sockets of a text in the form of /proc/net/tcp. Unless ports is nil, it adds how
// many sockets have each local port. A datagram to a multicast address goes to all sockets of a port.
func queued(r io.Reader, ports map[string]int) (sum int64) {
	for text := bufio.NewScanner(r); text.Scan(); {
		f := bytes.Fields(text.Bytes())
		if len(f) < 5 || !bytes.HasSuffix(f[0], []byte(":")) {
			continue
		}
		if ports != nil {
			ports[string(f[1][bytes.LastIndexByte(f[1], ':')+1:])]++
		}
		if tx, rx, ok := bytes.Cut(f[4], []byte(":")); ok {
			out, outErr := strconv.ParseInt(string(tx), 16, 64)
			in, inErr := strconv.ParseInt(string(rx), 16, 64)
			if outErr == nil && inErr == nil {
				sum += out + in
			}
		}
	}
	return sum
}

// mostOf returns the largest number of sockets that have one port.
func mostOf(ports map[string]int) (most int) {
	for _, n := range ports {
		most = max(most, n)
	}
	return most
}
