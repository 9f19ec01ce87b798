package kube

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// closed is the observed state of a pod's network.
type closed int

const (
	closedUnknown closed = iota
	closedNot            // a pod has reached an address
	closedSeen           // a pod did not reach addresses that the server reached meanwhile
)

// canary tries whether pods reach addresses that they may not reach.
type canary struct {
	targets []netip.AddrPort

	mu      sync.Mutex
	checked time.Time
	live    []target  // that the server itself reaches
	open    time.Time // when a pod stayed open until settleLimit; zero: none has
}

// target is an address that the server reaches.
type target struct {
	at   netip.AddrPort
	time time.Duration // in which the server reached it
}

// newCanary returns the canary of a cluster. Its addresses are those of the API server, which every pod reaches that
// no policy holds, and those of the operator.
func newCanary(host string, more []netip.AddrPort) *canary {
	c := &canary{targets: more}
	if u, err := url.Parse(host); err == nil {
		port := u.Port()
		if port == "" {
			port = "443"
		}
		c.add(u.Hostname(), port)
	}
	return c
}

// add adds the address of a host, unless it is loopback: a pod's is another.
func (c *canary) add(host, port string) {
	a, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil || !a.Addr().Is4() || a.Addr().IsLoopback() {
		return
	}
	c.targets = append(c.targets, a)
}

// addResolvers adds the DNS servers of a resolv.conf(5). Policies often leave a cluster's own open, which lead out.
func (c *canary) addResolvers(text string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			c.add(f[1], "53")
		}
	}
}

// reacher tries addresses from a pod, see [relay.Sandbox.Reaches].
type reacher interface {
	Reaches(ctx context.Context, to netip.AddrPort, patience time.Duration) (bool, error)
}

// kubelet is the port of the kubelet of each node.
const kubelet = 10250

const (
	// targetAge is how long it is believed that the server reaches an address.
	targetAge = time.Minute

	// reachLimit bounds an attempt, from when the pod has begun it. If a policy drops packets, each one takes as long.
	reachLimit = time.Second
	reachLeast = 100 * time.Millisecond

	// settleLimit is how long the network of a new pod may take to be closed.
	settleLimit = 10 * time.Second
)

// reached returns the addresses that the server reaches now.
func (c *canary) reached(ctx context.Context) []target {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.live) > 0 && time.Since(c.checked) < targetAge {
		return c.live
	}
	c.live, c.checked = nil, time.Now()
	for _, a := range c.targets {
		begun := time.Now()
		if answers(ctx, a) {
			c.live = append(c.live, target{a, time.Since(begun)})
		}
	}
	return c.live
}

// check tries all addresses from a pod, and the kubelet of its node, which policies need not hold: Kubernetes exempts a pod's
// own node from them. The rules of a new pod may come a little later than the pod, so a pod that reaches an address is asked
// again until settleLimit.
func (c *canary) check(ctx context.Context, sb reacher, node netip.Addr) (closed, error) {
	live := c.reached(ctx)
	if len(live) == 0 {
		return closedUnknown, nil
	}
	c.mu.Lock()
	end := time.Now().Add(settleLimit)
	if time.Since(c.open) < targetAge { // it is known that nothing closes pods
		end = time.Now()
	}
	c.mu.Unlock()
	for {
		open, stood, err := reaches(ctx, sb, live, node)
		switch {
		case err != nil:
			return closedUnknown, err
		case !open && stood:
			return closedSeen, nil
		case !open: // neither does the server reach an address now
			c.mu.Lock()
			defer c.mu.Unlock()
			c.live = nil
			return closedUnknown, nil
		}
		if !time.Now().Before(end) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.open = time.Now()
			return closedNot, nil
		}
		if ctx.Err() != nil {
			return closedNot, nil
		}
		t := time.NewTimer(50 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// reaches reports whether a pod reaches any of the addresses or the kubelet of its node, and whether the server reaches one of
// the addresses at the same time. If the server reaches none of them, the pod's failure does not prove that its network is closed.
func reaches(ctx context.Context, sb reacher, live []target, node netip.Addr) (open, stood bool, failed error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	try := func(to netip.AddrPort, patience time.Duration) {
		ok, err := sb.Reaches(ctx, to, patience)
		mu.Lock()
		defer mu.Unlock()
		open = open || ok
		if err != nil {
			failed = err
		}
	}
	for _, a := range live {
		all.Go(func() { try(a.at, min(max(20*a.time, reachLeast), reachLimit)) })
		all.Go(func() {
			ok := answers(ctx, a.at)
			mu.Lock()
			defer mu.Unlock()
			stood = stood || ok
		})
	}
	if node.Is4() {
		all.Go(func() { try(netip.AddrPortFrom(node, kubelet), reachLeast) })
	}
	all.Wait()
	return open, stood, failed
}

// answers reports whether the server reaches an address.
func answers(ctx context.Context, at netip.AddrPort) bool {
	d := net.Dialer{Timeout: reachLimit}
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
