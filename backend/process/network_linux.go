package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

const (
	dnsPort  = 53
	maxPorts = 32 // of one sandbox: each costs two descriptors and two queues of connections
)

// network is the state of a sandbox's network. The zero value has none.
type network struct {
	opening chan struct{} // holds a value while a call opens sockets; made by the first call

	mu   sync.Mutex
	over bool             // the sandbox has ended, or its sockets were closed
	out  *backend.Network // nil: nothing is open
	seen *jail.Refusals   // reports refused destinations; nil while nothing is open
}

var _ backend.Networker = (*sandbox)(nil)

// Network opens the missing sockets.
func (s *sandbox) Network(ctx context.Context, ports []int) (*backend.Network, error) {
	ports, err := wantedPorts(ports)
	if err != nil {
		return nil, err
	}
	return s.openNetwork(ctx, ports, true)
}

// Refuse opens the sockets of a network that leads nowhere.
func (s *sandbox) Refuse(ctx context.Context) (*backend.Network, error) {
	return s.openNetwork(ctx, nil, false)
}

// BeforeSockets has f called before a program makes the first network socket.
func (s *sandbox) BeforeSockets(f func()) bool {
	if s.hall.Mode() == jail.ModePlain { // programs cannot make one
		return true
	}
	return s.slot.BeforeSockets(f)
}

// openNetwork opens the missing sockets. leadOut says whether connections may lead out of the
// sandbox.
func (s *sandbox) openNetwork(ctx context.Context, ports []int, leadOut bool) (*backend.Network, error) {
	if s.hall.Mode() == jail.ModePlain {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "a network cannot be opened at isolation %s, where a sandbox has no network namespace of its own", sandboxmcp.TierL1).
			WithHint("run `sandboxmcp doctor` to see what keeps namespaces from being made")
	}
	release, err := s.hold()
	if err != nil {
		return nil, networkOver()
	}
	defer release()
	first, err := s.net.begin(ctx)
	if err != nil {
		return nil, networkError(err)
	}
	defer s.net.end()
	if first {
		go func() { // no connection may lead to a sandbox that has ended
			<-s.slot.Gone()
			s.net.close()
		}()
	}
	have, err := s.net.current()
	if err != nil {
		return nil, networkError(err)
	}
	if err = fits(have, ports); err != nil {
		return nil, err
	}
	if leadOut {
		s.slot.LeadOut()
	}
	more, seen, err := s.openSockets(ctx, missing(have, ports))
	if err != nil {
		return nil, networkError(err)
	}
	out, err := s.net.add(more, seen)
	if err != nil {
		return nil, networkError(err)
	}
	return out, nil
}

// wantedPorts returns the TCP ports that must be open, sorted.
func wantedPorts(ports []int) ([]int, error) {
	for _, p := range ports {
		if p < 1 || p > 65535 || p == dnsPort || p == backend.ProxyPort {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port %d cannot be opened: a port is 1 to 65535, and %d and %d are the sandbox's resolver and proxy", p, dnsPort, backend.ProxyPort)
		}
	}
	all := append([]int{80, 443}, ports...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// fits returns an error if more ports would be open than maxPorts.
func fits(have *backend.Network, ports []int) error {
	all := slices.Clone(ports)
	if have != nil {
		all = slices.AppendSeq(all, maps.Keys(have.TCP))
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n > maxPorts {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d ports are to be open in one sandbox, and %d can", n, maxPorts)
	}
	return nil
}

// missing returns the sockets that a network lacks.
func missing(have *backend.Network, ports []int) []jail.Socket {
	var want []jail.Socket
	add := func(w jail.Socket) {
		want = append(want, w)
		if jail.HaveV6() {
			w.V6 = true
			want = append(want, w)
		}
	}
	if have == nil {
		add(jail.Socket{Port: dnsPort, UDP: true})
		add(jail.Socket{Port: dnsPort})
		want = append(want, jail.Socket{Port: backend.ProxyPort, Loopback: true}, jail.Socket{Refusals: true})
		have = &backend.Network{}
	}
	for _, p := range ports {
		if have.TCP[p] == nil {
			add(jail.Socket{Port: p})
		}
	}
	return want
}

// openSockets makes sockets in the sandbox. If one fails, it closes all of them.
func (s *sandbox) openSockets(ctx context.Context, want []jail.Socket) (*backend.Network, *jail.Refusals, error) {
	s.b.mu.Lock()
	n := &backend.Network{TCP: map[int]net.Listener{}, Effort: s.effort, Certificates: s.b.certs, Chosen: s.b.cfg.CertFile != ""}
	s.b.mu.Unlock()
	parts := map[int][]net.Listener{}
	var seen *jail.Refusals
	var err error
	for some := range slices.Chunk(want, jail.MaxSockets) {
		var fds []int
		if fds, err = s.slot.Sockets(ctx, some); err != nil {
			break
		}
		for i, w := range some {
			if w.Refusals {
				seen = jail.NewRefusals(fds[i])
				n.Refused = func() ([]backend.Refusal, int) { return refusals(seen) }
				continue
			}
			f := os.NewFile(uintptr(fds[i]), w.String())
			err = errors.Join(err, take(n, parts, w, f), f.Close())
		}
		if err != nil {
			break
		}
	}
	for port, p := range parts {
		if port == dnsPort {
			n.DNSTCP = append(n.DNSTCP, p...)
			continue
		}
		n.TCP[port] = jail.Join(p)
	}
	if err != nil {
		seen.Close()
		return nil, nil, errors.Join(err, n.Close())
	}
	return n, seen, nil
}

// refusals takes the refused destinations from the kernel of a sandbox.
func refusals(from *jail.Refusals) (list []backend.Refusal, lost int) {
	taken, lost := from.Take()
	for _, r := range taken {
		network := "tcp"
		if r.UDP {
			network = "udp"
		}
		list = append(list, backend.Refusal{Network: network, Address: r.Address, Count: r.Count})
	}
	return list, lost
}

// take adds a socket to n, or to parts if its port has several listeners.
func take(n *backend.Network, parts map[int][]net.Listener, w jail.Socket, f *os.File) error {
	if w.UDP {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		udp, ok := c.(*net.UDPConn)
		if !ok {
			return errors.Join(fmt.Errorf("%s is no socket of UDP", w), c.Close())
		}
		n.DNS = append(n.DNS, jail.AnswerPackets(udp, w.V6))
		return nil
	}
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	if w.Loopback {
		n.Proxy = l
		return nil
	}
	parts[w.Port] = append(parts[w.Port], l)
	return nil
}

// begin waits until no other call opens sockets. first reports that none did before.
func (n *network) begin(ctx context.Context) (first bool, err error) {
	n.mu.Lock()
	if first = n.opening == nil; first {
		n.opening = make(chan struct{}, 1)
	}
	turn := n.opening
	n.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return first, nil
	case <-ctx.Done():
		return first, ctx.Err()
	}
}

func (n *network) end() { <-n.opening }

// current returns the open sockets, or nil. After close it fails with net.ErrClosed.
func (n *network) current() (*backend.Network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return nil, net.ErrClosed
	}
	return n.out, nil
}

// add adds sockets to the open ones. It takes ownership of them.
func (n *network) add(more *backend.Network, seen *jail.Refusals) (*backend.Network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.over:
		seen.Close()
		return nil, errors.Join(net.ErrClosed, more.Close())
	case n.out == nil:
		n.out, n.seen = more, seen
	default:
		maps.Copy(n.out.TCP, more.TCP)
	}
	return n.out, nil
}

// close closes all sockets for good.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	_ = n.out.Close()
	n.seen.Close()
}

func networkOver() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox has ended, and no network can be opened in it").WithHint("use a new one")
}

// networkError converts the error of a network that was not opened.
func networkError(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the network was not opened: %s", err).WithCause(err)
	case errors.Is(err, jail.ErrPortTaken):
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the network was not opened: %s", err).WithCause(err).
			WithHint("end the program that listens there, or use another session; without a network nothing is open")
	case errors.Is(err, net.ErrClosed), errors.Is(err, unix.ESRCH), errors.Is(err, jail.ErrEnded):
		return networkOver()
	default:
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the network cannot be opened: %s", err).WithCause(err)
	}
}
