package kube

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// reachable is a pod that reaches some addresses.
type reachable []string

func (r reachable) Reaches(_ context.Context, to netip.AddrPort, _ time.Duration) (bool, error) {
	return slices.Contains(r, to.String()), nil
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
	c.open = time.Now() // it does not wait for rules
	if got := c.reached(t.Context()); len(got) != 1 {
		t.Fatalf("the server reaches %v, want the listener", got)
	}
	if !open {
		_ = l.Close()
	}
	host, _ := netip.ParseAddr(node)
	got, err := c.check(t.Context(), pod, host)
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
		{"", nil, closedSeen},
		{"fd00::7", nil, closedSeen}, // programs have no IPv6
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
