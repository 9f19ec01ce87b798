package kube

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// reachable is a pod that reaches some addresses.
type reachable []string

func (r reachable) Reaches(_ context.Context, to netip.AddrPort, _ time.Duration) (bool, error) {
	return slices.Contains(r, to.String()), nil
}

// Resolves finds addresses that have "udp " before them.
func (r reachable) Resolves(_ context.Context, by netip.AddrPort, _ time.Duration) (bool, error) {
	return slices.Contains(r, "udp "+by.String()), nil
}

// closedFor returns the verdict of a canary with one address about a pod. The server has reached the address before. If open is
// false, nothing listens there any more when the pod tries it.
func closedFor(t *testing.T, open bool, node string, pod reachable) closed {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := newCanary("https://127.0.0.1:1", []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())})
	c.open["n1"] = time.Now() // it does not wait for rules
	if got := c.reached(t.Context()); len(got) != 1 {
		t.Fatalf("the server reaches %v, want the listener", got)
	}
	if !open {
		_ = l.Close()
	}
	host, _ := netip.ParseAddr(node)
	b, _ := newFake(t, nil)
	got, _, err := c.check(t.Context(), pod, "n1", func() []netip.AddrPort { return b.near(&claimed{host: host}) })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestTheNodeOfAPodIsTried: Kubernetes exempts a pod's own node from policies, so some pods reach its kubelet while a policy
// closes everything else.
func TestTheNodeOfAPodIsTried(t *testing.T) {
	for _, c := range []struct {
		node string
		pod  reachable
		want closed
	}{
		{"192.0.2.7", nil, closedSeen},
		{"192.0.2.7", reachable{"192.0.2.7:10250"}, closedNot},
		{"192.0.2.7", reachable{"192.0.2.7:22"}, closedNot}, // a firewall of the node may close the kubelet alone
		{"", nil, closedSeen},
		{"", reachable{"169.254.169.254:80"}, closedNot}, // on some clouds the node answers there
		{"fd00::7", nil, closedSeen},                     // programs have no IPv6
		{"", reachable{"168.63.129.16:80"}, closedNot},
		{"", reachable{"udp 169.254.20.10:53"}, closedNot}, // a cache of the node
		{"", reachable{"1.1.1.1:443"}, closedNot},          // the policy forbids private addresses only
		{"", reachable{"udp 8.8.8.8:53"}, closedNot},       // or leave open what asks for names
	} {
		if got := closedFor(t, true, c.node, c.pod); got != c.want {
			t.Errorf("a pod of the node %q that reaches %v: got %d, want %d", c.node, c.pod, got, c.want)
		}
	}
	p := &corev1.Pod{Status: corev1.PodStatus{HostIP: "192.0.2.7"}}
	if got := claimedOf(p).host.String(); got != "192.0.2.7" {
		t.Errorf("got the node %s, want that of the pod's status", got)
	}
}

// TestTheRemedyCanBeFollowed: the settings accept no tier below L1.
func TestTheRemedyCanBeFollowed(t *testing.T) {
	if got := New(Config{}).remedy(sandboxmcp.WallNoNetwork); strings.Contains(got, "L0") {
		t.Errorf("got %q", got)
	}
}

// TestASilentAddressProvesNothing: a pod that does not reach an address is only closed if the server still reaches it. The API
// server may have ended since the server has last tried it.
func TestASilentAddressProvesNothing(t *testing.T) {
	if got := closedFor(t, false, "192.0.2.7", nil); got != closedUnknown {
		t.Errorf("got %d, want that nothing is known", got)
	}
}

// TestOtherContainersOfAPodAreTold: what other containers listen for at 127.0.0.1 is in reach of programs.
func TestOtherContainersOfAPodAreTold(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	own := corev1.Container{Name: containerName}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want []string
	}{
		"alone":               {corev1.PodSpec{Containers: []corev1.Container{own}, InitContainers: []corev1.Container{{Name: "once"}}}, nil},
		"a second":            {corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy"}, own}}, []string{"proxy"}},
		"one that stays":      {corev1.PodSpec{Containers: []corev1.Container{own}, InitContainers: []corev1.Container{{Name: "mesh", RestartPolicy: &always}}}, []string{"mesh"}},
		"one to look into it": {corev1.PodSpec{Containers: []corev1.Container{own}, EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}}, []string{"debug"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := &box{b: New(Config{}), pod: claimedOf(&corev1.Pod{Spec: c.spec}), closed: closedSeen}
			iso := x.report(t.Context(), relay.Seen{Network: sandboxmcp.WallNoNetwork, NoIPv6: true})
			told := slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, weakOthers) })
			if !slices.Equal(x.pod.others, c.want) || told != (c.want != nil) || slices.Contains(iso.Walls, sandboxmcp.WallNoNetwork) == told {
				t.Errorf("got %v, walls %v and weak %v", x.pod.others, iso.Walls, iso.Weak)
			}
		})
	}
}

// TestOtherPodsAreTried: a bridge may pass packets between pods of a node that no policy looks at, and a policy may let the pods of a
// namespace reach one another, also those of other nodes. Pods that do not run and the pod itself are not tried.
func TestOtherPodsAreTried(t *testing.T) {
	at := func(name, ip, node string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space, Labels: map[string]string{labelManaged: managed}}, Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Phase, p.Status.PodIP = phase, ip
		return p
	}
	b, _ := newFake(t, nil, at("own", "10.0.1.1", "n1", corev1.PodRunning), at("beside", "10.0.1.2", "n1", corev1.PodRunning), at("far", "10.0.2.2", "n2", corev1.PodRunning),
		at("ended", "10.0.1.3", "n1", corev1.PodSucceeded), at("comes", "", "n1", corev1.PodPending), at("six", "fd00::1", "n1", corev1.PodRunning))
	usual := append(slices.Clone(metadata), internet)
	want := append(slices.Clone(usual), netip.MustParseAddrPort("10.0.1.2:8931"), netip.MustParseAddrPort("10.0.2.2:8931"))
	if got := b.near(&claimed{ip: "10.0.1.1", node: "n1"}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i := range 10 {
		for _, node := range []string{"n1", "n2"} {
			if err := b.watch.list.GetStore().Add(at(node+strconv.Itoa(i), "10.0.1.9", node, corev1.PodRunning)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := b.near(&claimed{ip: "10.0.1.1", node: "n1"}); len(got) != len(usual)+2*mostNeighbors {
		t.Errorf("got %d addresses, want %d", len(got), len(usual)+2*mostNeighbors)
	}
}

// rounds is a pod that reaches in each round the addresses that are given for it, and then none. In a round it tries each address.
type rounds struct {
	mu    sync.Mutex
	reach []reachable
	tried map[netip.AddrPort]int
}

func (r *rounds) Reaches(ctx context.Context, to netip.AddrPort, patience time.Duration) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.tried[to]
	r.tried[to]++
	if i >= len(r.reach) {
		return false, nil
	}
	return r.reach[i].Reaches(ctx, to, patience)
}

// Resolves finds nothing.
func (*rounds) Resolves(context.Context, netip.AddrPort, time.Duration) (bool, error) {
	return false, nil
}

// TestAPodThatEndsDoesNotCloseAnother: a pod that has reached another one of its node is not closed because that one has ended. It is
// closed if its rules have come.
func TestAPodThatEndsDoesNotCloseAnother(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	server, beside := l.Addr().String(), "10.0.1.2:8931"
	only, both := reachable{beside}, reachable{server, beside}
	for name, c := range map[string]struct {
		reach []reachable
		stays bool
		want  closed
	}{
		"rules come":                       {[]reachable{both, both, both, both, both}, true, closedSeen},
		"rules come as the other pod ends": {[]reachable{both, both, both, both, only}, false, closedSeen},
		"the other pod ends":               {[]reachable{both, only, only, only}, false, closedNot},
		"its rules come late":              {[]reachable{both, only, only, only}, true, closedSeen},
	} {
		canary := newCanary("https://127.0.0.1:1", []netip.AddrPort{netip.MustParseAddrPort(server)})
		pod := &rounds{reach: c.reach, tried: map[netip.AddrPort]int{}}
		near := func() []netip.AddrPort {
			pod.mu.Lock()
			defer pod.mu.Unlock()
			at := netip.MustParseAddrPort(beside)
			if !c.stays && pod.tried[at] >= len(c.reach) {
				return nil
			}
			return []netip.AddrPort{at}
		}
		if got, _, err := canary.check(t.Context(), pod, "n1", near); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, c.want)
		}
		if len(canary.open) > 0 {
			t.Errorf("%s: other pods are not waited for", name)
		}
	}
}

// TestANodeIsNotJudgedByAnother: if nothing closes the pods of a node, pods of other nodes are still waited for whose rules come late. A
// pod that was not waited for does not put off when those of its node are waited for again.
func TestANodeIsNotJudgedByAnother(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	server := netip.MustParseAddrPort(l.Addr().String())
	canary := newCanary("https://127.0.0.1:1", []netip.AddrPort{server})
	seen := time.Now().Add(-targetAge / 2)
	canary.open["open"] = seen
	for node, want := range map[string]closed{"open": closedNot, "late": closedSeen} {
		pod := &rounds{reach: []reachable{{server.String()}}, tried: map[netip.AddrPort]int{}}
		got, reached, err := canary.check(t.Context(), pod, node, func() []netip.AddrPort { return nil })
		if err != nil || got != want || slices.Contains(reached, server) != (want == closedNot) {
			t.Errorf("%s: got %d, %v and %v, want %d", node, got, reached, err, want)
		}
	}
	if len(canary.open) != 1 || !canary.open["open"].Equal(seen) {
		t.Errorf("got %v, want what was known", canary.open)
	}
}

// TestWhatAPodReachesIsTold: the error and weak name what has to be closed, without addresses of the cluster.
func TestWhatAPodReachesIsTold(t *testing.T) {
	x := &box{b: New(Config{}), pod: &claimed{host: netip.MustParseAddr("192.0.2.7")}, closed: closedNot}
	for _, at := range []string{"192.0.2.7:22", "10.0.1.2:8931", "10.0.1.3:8931", "10.96.0.10:53", "10.96.0.1:443", "169.254.169.254:80", "1.1.1.1:443", "8.8.8.8:53"} {
		x.reached = append(x.reached, netip.MustParseAddrPort(at))
	}
	const want = "it reaches a DNS server, its node at port 22, other pods of sandboxes, the cloud's metadata at 169.254.169.254:80, the cluster or an address of kube_canary, the internet"
	x.iso.Walls = required
	if err := x.b.judge(x, sandboxmcp.TierL1); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	x.closed = closedUnknown
	if err := x.b.judge(x, sandboxmcp.TierL1); !strings.Contains(sandboxmcp.AsError(err).Hint, "kube_canary") {
		t.Errorf("nothing was tried: got the hint %q", sandboxmcp.AsError(err).Hint)
	}
	x.closed = closedNot
	if iso := x.report(t.Context(), relay.Seen{}); !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.Contains(w, "its node at port 22") }) {
		t.Errorf("got %v", iso.Weak)
	}
}

// TestTheWallsAreObservedMeanwhile: while the canary waits for answers, the walls are observed. The time is that of the longer one.
func TestTheWallsAreObservedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{errors.New("one"), errors.New("other")}
		takes := func(d time.Duration, err error) func() error {
			return func() error {
				time.Sleep(d)
				return err
			}
		}
		for _, d := range [][2]time.Duration{{reachLeast, 20 * time.Millisecond}, {time.Millisecond, 20 * time.Millisecond}} {
			begun := time.Now()
			one, other := together(takes(d[0], errs[0]), takes(d[1], errs[1]))
			if took := time.Since(begun); took != max(d[0], d[1]) || !errors.Is(one, errs[0]) || !errors.Is(other, errs[1]) {
				t.Errorf("%v: got %v and %v after %s", d, one, other, took)
			}
		}
	})
}
