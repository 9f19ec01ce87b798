package kube

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
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
	targets   []netip.AddrPort
	resolvers []netip.AddrPort // DNS servers that no pod may reach by UDP

	mu      sync.Mutex
	checked time.Time
	live    []target             // that the server itself reaches
	open    map[string]time.Time // by node, when a pod stayed open until settleLimit
}

// target is an address that the server reaches.
type target struct {
	at   netip.AddrPort
	time time.Duration // in which the server reached it
}

// newCanary returns the canary of a cluster. Its addresses are those of the API server, which every pod reaches that
// no policy holds, and those of the operator.
func newCanary(host string, more []netip.AddrPort) *canary {
	c := &canary{targets: more, resolvers: slices.Clone(openResolvers), open: map[string]time.Time{}}
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

// addResolvers adds the DNS servers of a resolv.conf(5). Policies often leave a cluster's own open, mostly by UDP alone. Questions for
// names lead out.
func (c *canary) addResolvers(text string) {
	before := len(c.targets)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			c.add(f[1], strconv.Itoa(dnsPort))
		}
	}
	c.resolvers = append(c.resolvers, c.targets[before:]...)
}

// reacher tries addresses from a pod, see [relay.Sandbox.Reaches] and [relay.Sandbox.Resolves].
type reacher interface {
	Reaches(ctx context.Context, to netip.AddrPort, patience time.Duration) (bool, error)
	Resolves(ctx context.Context, by netip.AddrPort, patience time.Duration) (bool, error)
}

// nodePorts are ports at which most nodes listen: those of the kubelet, of kube-proxy's health and of SSH.
var nodePorts = []uint16{10250, 10256, 22}

// metadata are where clouds answer machines, and give them the keys of their accounts. On some, the node itself answers.
var metadata = []netip.AddrPort{
	netip.MustParseAddrPort("169.254.169.254:80"), // most
	netip.MustParseAddrPort("168.63.129.16:80"),   // Azure
	netip.MustParseAddrPort("100.100.100.200:80"), // Alibaba
}

// internet is a public DNS server that accepts TLS connections from everybody. Many policies forbid private addresses only, so a
// pod also tries a public one.
var internet = netip.MustParseAddrPort("1.1.1.1:443")

// openResolvers are DNS servers that answer by UDP: a public one, NodeLocal DNSCache, and that of some clouds.
var openResolvers = []netip.AddrPort{netip.MustParseAddrPort("8.8.8.8:53"), netip.MustParseAddrPort("169.254.20.10:53"), netip.MustParseAddrPort("169.254.169.254:53")}

const dnsPort = 53

// mostNeighbors bounds how many other pods of a node are tried from a pod, and how many of all other nodes.
const mostNeighbors = 3

// near returns the addresses beside a pod, which policies need not hold. Kubernetes exempts a pod's own node from them. Packets
// between two pods of a node may pass a bridge that no policy looks at. Pods of other nodes are tried because a second policy of the
// namespace may let its pods reach one another. Each sandbox listens for the others' attempts. The public internet is among them: whether
// the server reaches it says nothing of the pod.
func (b *Backend) near(pod *claimed) (list []netip.AddrPort) {
	list = append(append(list, metadata...), internet)
	if pod.host.Is4() {
		for _, port := range nodePorts {
			list = append(list, netip.AddrPortFrom(pod.host, port))
		}
	}
	others, err := corelisters.NewPodLister(b.watch.list.GetIndexer()).Pods(b.cluster.namespace).List(labels.Everything())
	if err != nil {
		return list
	}
	slices.SortFunc(others, func(a, b *corev1.Pod) int { // so that a new one takes no other's place
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	tried := map[bool]int{} // by whether they are of the same node
	for _, p := range others {
		at, err := netip.ParseAddr(p.Status.PodIP)
		runs, beside := p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil, p.Spec.NodeName == pod.node
		if err == nil && at.Is4() && runs && p.Status.PodIP != pod.ip && tried[beside] < mostNeighbors {
			tried[beside]++
			list = append(list, netip.AddrPortFrom(at, agent.Port))
		}
	}
	return list
}

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

// round is what one attempt at all addresses has shown.
type round struct {
	away   []netip.AddrPort // what the pod has reached of the canary's addresses
	beside []netip.AddrPort // what it has reached near it
	stood  bool             // the server has reached an address meanwhile
}

// mostBeside is a number of rounds. A pod that has reached an address near it in so many rounds does not count as closed,
// even if that address has gone meanwhile.
const mostBeside = 3

// check tries all addresses from a pod, and those near it. The rules of a new pod may come a little later than the pod, so a pod
// that reaches an address is asked again until settleLimit.
// It also returns what an open pod has reached.
func (c *canary) check(ctx context.Context, sb reacher, node string, near func() []netip.AddrPort) (closed, []netip.AddrPort, error) {
	live := c.reached(ctx)
	if len(live) == 0 {
		return closedUnknown, nil, nil
	}
	known := c.knows(node)
	end := time.Now().Add(settleLimit)
	if known {
		end = time.Now()
	}
	beside := map[netip.AddrPort]int{} // rounds in which the pod has reached an address near it
	for {
		r, err := reaches(ctx, sb, live, c.resolvers, near())
		reached := slices.Concat(r.away, r.beside)
		switch {
		case err != nil:
			return closedUnknown, nil, err
		case len(reached) == 0 && r.stood: // it may have reached a pod that has ended since, and others may come
			if gone := ended(beside, near()); len(gone) > 0 {
				return closedNot, gone, nil
			}
			return closedSeen, nil, nil
		case len(reached) == 0: // neither does the server reach an address now
			c.mu.Lock()
			defer c.mu.Unlock()
			c.live = nil
			return closedUnknown, nil, nil
		}
		for _, at := range r.beside {
			if len(r.away) == 0 {
				beside[at]++
			}
		}
		if !time.Now().Before(end) {
			if !known {
				c.learn(node)
			}
			return closedNot, reached, nil
		}
		if ctx.Err() != nil {
			return closedNot, reached, nil
		}
		t := time.NewTimer(50 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// knows reports whether nothing has closed a pod of a node lately. A new pod of it is then not waited for.
func (c *canary) knows(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.open[node]) < targetAge
}

// learn records that a pod of a node stayed open until settleLimit. A pod that was not waited for is no such pod: its rules may
// only be late.
func (c *canary) learn(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.open, func(_ string, at time.Time) bool { return time.Since(at) >= targetAge })
	c.open[node] = time.Now()
}

// ended returns the addresses that a pod has reached for long, and that are not near it any more.
func ended(beside map[netip.AddrPort]int, near []netip.AddrPort) (gone []netip.AddrPort) {
	for at, rounds := range beside {
		if rounds >= mostBeside && !slices.Contains(near, at) {
			gone = append(gone, at)
		}
	}
	return gone
}

// reaches tries all addresses from a pod, and from the server those of the canary, but for resolvers. If the server reaches none of them, the pod's
// failure does not prove that its network is closed.
func reaches(ctx context.Context, sb reacher, live []target, resolvers, near []netip.AddrPort) (r round, failed error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	told := func(ok bool, err error, reached func()) {
		mu.Lock()
		defer mu.Unlock()
		if ok {
			reached()
		}
		if err != nil {
			failed = err
		}
	}
	for _, a := range live {
		all.Go(func() {
			ok, err := sb.Reaches(ctx, a.at, min(max(20*a.time, reachLeast), reachLimit))
			told(ok, err, func() { r.away = append(r.away, a.at) })
		})
		all.Go(func() {
			ok := answers(ctx, a.at)
			mu.Lock()
			defer mu.Unlock()
			r.stood = r.stood || ok
		})
	}
	for _, at := range near {
		all.Go(func() {
			ok, err := sb.Reaches(ctx, at, reachLeast)
			told(ok, err, func() { r.beside = append(r.beside, at) })
		})
	}
	for _, at := range resolvers {
		all.Go(func() {
			ok, err := sb.Resolves(ctx, at, reachLeast)
			told(ok, err, func() { r.away = append(r.away, at) })
		})
	}
	all.Wait()
	return r, failed
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
