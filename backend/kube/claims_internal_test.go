package kube

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": claimGroup.String(), "kind": kind, "metadata": map[string]any{"name": name, "namespace": space, "uid": "uid of " + name}, "spec": spec,
	}}
}

func ready(u *unstructured.Unstructured, status, reason, sandbox string) {
	u.Object["status"] = map[string]any{
		"conditions": []any{map[string]any{"type": "Ready", "status": status, "reason": reason, "message": "because", "lastTransitionTime": "2026-11-01T00:00:00Z"}},
		"sandbox":    map[string]any{"name": sandbox},
	}
}

// newPooled returns a backend of a cluster with agent-sandbox, a pool "pool" and a warm pod "warm-1". become
// changes each claim that is made. spare is the number of spare pods; none is the usual.
func newPooled(t *testing.T, become func(u *unstructured.Unstructured), spare ...int) (*Backend, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	cfg := Config{Pool: "pool"}
	for _, n := range spare {
		cfg.SparePods = n
	}
	b := New(cfg)
	b.key = make([]byte, 64)
	pod := b.newPod("warm-1", small)
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	pod.Namespace, pod.UID, pod.OwnerReferences = space, "uid of warm-1", []metav1.OwnerReference{{Kind: "Sandbox", Name: "warm-1", Controller: new(true)}}
	delete(pod.Labels, labelServer) // it is the pool's
	runs(pod)
	api := fake.NewClientset(pod)
	api.Resources = []*metav1.APIResourceList{{GroupVersion: claimGroup.String()}}
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{claimKind: "SandboxClaimList", poolKind: "SandboxWarmPoolList", templateKind: "SandboxTemplateList"},
		object("SandboxWarmPool", "pool", map[string]any{"sandboxTemplateRef": map[string]any{"name": "template"}}),
		object("SandboxTemplate", "template", map[string]any{"podTemplate": map[string]any{"spec": raw}}))
	objects.PrependReactor("create", "sandboxclaims", func(a ktesting.Action) (bool, runtime.Object, error) {
		u := a.(ktesting.CreateAction).GetObject().(*unstructured.Unstructured)
		u.SetUID("uid of the claim")
		u.SetNamespace(space)
		if become != nil {
			become(u)
		}
		return false, nil, nil
	})
	b.cluster = &cluster{rest: &rest.Config{Host: "https://127.0.0.1:1"}, api: api, objects: objects, namespace: space}
	if err = b.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
	// Unlike a cluster, the client forgets what happens between a list and its watch.
	testkit.Until(t, "the claims are watched", func() bool {
		return slices.ContainsFunc(objects.Actions(), func(a ktesting.Action) bool { return a.Matches("watch", "sandboxclaims") })
	})
	return b, objects
}

func claimsOf(t *testing.T, objects *dynamicfake.FakeDynamicClient) []unstructured.Unstructured {
	t.Helper()
	list, err := objects.Resource(claimKind).Namespace(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestThePolicyOfAgentSandboxIsNoWall: unless the template says otherwise, agent-sandbox lets its pods reach the internet.
func TestThePolicyOfAgentSandboxIsNoWall(t *testing.T) {
	rule := []any{map[string]any{}}
	for name, c := range map[string]struct {
		spec   map[string]any
		opened bool
	}{
		"unmanaged":                {map[string]any{"networkPolicyManagement": "Unmanaged"}, false},
		"the usual":                {map[string]any{}, true},
		"managed":                  {map[string]any{"networkPolicyManagement": "Managed"}, true},
		"a kind to come":           {map[string]any{"networkPolicyManagement": "Other"}, true},
		"a policy that closes":     {map[string]any{"networkPolicyManagement": "Managed", "networkPolicy": map[string]any{"ingress": rule}}, false},
		"a policy that opens":      {map[string]any{"networkPolicy": map[string]any{"egress": rule}}, true},
		"unmanaged, with a policy": {map[string]any{"networkPolicyManagement": "Unmanaged", "networkPolicy": map[string]any{"egress": rule}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, objects := newPooled(t, func(u *unstructured.Unstructured) { ready(u, "True", "Ready", "warm-1") })
			templates := objects.Resource(templateKind).Namespace(space)
			u, err := templates.Get(t.Context(), "template", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(u.Object["spec"].(map[string]any), c.spec)
			if _, err = templates.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			pod, err := b.provider.claim(t.Context(), small)
			if err != nil {
				t.Fatal(err)
			}
			x := &box{b: b, pod: pod, closed: closedSeen}
			x.iso = x.report(t.Context(), relay.Seen{Network: sandboxmcp.WallNoNetwork, NoIPv6: true})
			if stands := slices.Contains(x.iso.Walls, sandboxmcp.WallNoNetwork); stands == c.opened || slices.Contains(x.iso.Weak, weakPolicy) != c.opened {
				t.Errorf("got walls %v and weak %v", x.iso.Walls, x.iso.Weak)
			}
			x.iso.Walls = append(x.iso.Walls, required...)
			if err := b.judge(x, sandboxmcp.TierL1); (err != nil) != c.opened || err != nil && !strings.Contains(sandboxmcp.AsError(err).Hint, "Unmanaged") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestClaimOfAWarmPod: a claim ends by itself, its end can be put off, and its pod is taken with its UID.
func TestClaimOfAWarmPod(t *testing.T) {
	b, objects := newPooled(t, func(u *unstructured.Unstructured) { ready(u, "True", "Ready", "warm-1") })
	c, err := b.provider.claim(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	if c.name != "warm-1" || c.uid != "uid of warm-1" || c.owner == "" || c.ownUser {
		t.Errorf("got %+v", c)
	}
	end := func() time.Time {
		all := claimsOf(t, objects)
		if len(all) != 1 {
			t.Fatalf("got %d claims, want 1", len(all))
		}
		text, _, _ := unstructured.NestedString(all[0].Object, "spec", "lifecycle", "shutdownTime")
		policy, _, _ := unstructured.NestedString(all[0].Object, "spec", "lifecycle", "shutdownPolicy")
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || policy != "Delete" {
			t.Fatalf("got the end %q and the policy %q", text, policy)
		}
		return at
	}
	if left := time.Until(end()); left > claimAge || left < claimAge-time.Minute {
		t.Errorf("the claim ends in %s, want about %s", left, claimAge)
	}
	if err = b.provider.renew(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(end()); left < claimAge-time.Minute {
		t.Errorf("after renew it ends in %s, want about %s", left, claimAge)
	}
	if err = b.provider.release(t.Context(), c); err != nil || len(claimsOf(t, objects)) != 0 {
		t.Errorf("got %v and %d claims, want none", err, len(claimsOf(t, objects)))
	}
	if err = b.provider.release(t.Context(), c); err != nil {
		t.Errorf("a second release: %v", err)
	}
}

// TestPodsOfAFormerTemplateAreNotUsed: a pool keeps the pods that were made before its template changed. A sandbox that may use less gets
// none of them, also if it was claimed ahead, and their claims are removed.
func TestPodsOfAFormerTemplateAreNotUsed(t *testing.T) {
	b, objects := newPooled(t, func(u *unstructured.Unstructured) { ready(u, "True", "Ready", "warm-1") })
	o, _, _ := b.watch.list.GetStore().GetByKey(space + "/warm-1")
	former := o.(*corev1.Pod).DeepCopy()
	former.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Gi")
	if err := b.watch.list.GetStore().Update(former); err != nil {
		t.Fatal(err)
	}
	_, err := b.provider.claim(t.Context(), small)
	if !errors.Is(err, errUnfit) || !strings.Contains(sandboxmcp.AsError(err).Hint, "updateStrategy") || len(claimsOf(t, objects)) != 0 {
		t.Errorf("got %v and %d claims, want that the pod does not fit", err, len(claimsOf(t, objects)))
	}
	c := b.provider.(*claims)
	if _, err = c.shapeOf(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.spares.list = []spare{{claimedOf(former), *c.shape}}
	if got := c.handOut(*c.shape, small, nil); got != nil {
		t.Errorf("got the pod %s that was claimed ahead", got.name)
	}
}

// TestClaimsThatFail: a claim that expires, that is refused or whose sandbox is another's is given up, and removed.
func TestClaimsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		become func(u *unstructured.Unstructured)
		want   string
	}{
		"expired": {func(u *unstructured.Unstructured) { ready(u, "False", "ClaimExpired", "") }, "ClaimExpired"},
		"refused": {func(u *unstructured.Unstructured) { ready(u, "False", "InvalidMetadata", "") }, "InvalidMetadata"},
		"silent":  {nil, "no controller has answered"},
		"dry":     {func(u *unstructured.Unstructured) { ready(u, "False", "SandboxNotReady", "") }, "SandboxNotReady because"},
		"no pod":  {func(u *unstructured.Unstructured) { ready(u, "True", "Ready", "warm-2") }, "the cluster has told nothing of it"},
	} {
		t.Run(name, func(t *testing.T) {
			b, objects := newPooled(t, c.become)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := b.provider.claim(ctx, small)
			if err == nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left := claimsOf(t, objects); len(left) != 0 {
				t.Errorf("got %d claims, want none", len(left))
			}
		})
	}
}

// TestADeletedClaimIsGivenUp: if an operator deletes a claim, Open stops waiting for it.
func TestADeletedClaimIsGivenUp(t *testing.T) {
	b, objects := newPooled(t, nil)
	done := make(chan error, 1)
	go func() {
		_, err := b.provider.claim(context.WithoutCancel(t.Context()), small)
		done <- err
	}()
	testkit.Until(t, "a claim", func() bool { return len(claimsOf(t, objects)) == 1 })
	if err := objects.Resource(claimKind).Namespace(space).Delete(t.Context(), claimsOf(t, objects)[0].GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "the claim was deleted") {
		t.Errorf("got %v, want that the claim was deleted", err)
	}
}

// TestSmallerRunsGetPodsOfTheirOwn: a pod that may use more than a run is not claimed. Without an image the error
// names the setting.
func TestSmallerRunsGetPodsOfTheirOwn(t *testing.T) {
	b, objects := newPooled(t, nil)
	less := small
	less.MemoryBytes /= 2
	_, err := b.provider.claim(t.Context(), less)
	if e := sandboxmcp.AsError(err); err == nil || !strings.Contains(e.Hint, "kube_image") || len(claimsOf(t, objects)) != 0 {
		t.Errorf("got %v and %d claims, want a hint on kube_image and none", err, len(claimsOf(t, objects)))
	}
}

// TestAPoolNeedsAgentSandbox: without its kinds a backend with an image makes pods, and one without says what is
// missing.
func TestAPoolNeedsAgentSandbox(t *testing.T) {
	for image, want := range map[string]string{"": "kube_pool", "image": ""} {
		b := New(Config{Pool: "pool", Image: image})
		b.cluster = &cluster{rest: &rest.Config{Host: "https://127.0.0.1:1"}, api: fake.NewClientset(), namespace: space}
		err := b.connect(t.Context())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("image %q: got %v, want %q", image, err, want)
		}
		if _, one := b.provider.(plain); err == nil && !one {
			t.Errorf("image %q: got a %T, want pods one by one", image, b.provider)
		}
		_ = b.Close(t.Context())
	}
}

// TestStartedPods: a pod counts as started only if its container runs. Its phase is not enough.
func TestStartedPods(t *testing.T) {
	p := podOf("x", nil)
	if ok, err := started(p); !ok || err != nil {
		t.Errorf("got %v %v, want that it runs", ok, err)
	}
	p.Status.PodIP = ""
	if ok, err := started(p); ok || err != nil {
		t.Errorf("without an address: got %v %v, want to wait", ok, err)
	}
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		p.Status.Phase = phase
		if _, err := started(p); err == nil {
			t.Errorf("%s: got no error", phase)
		}
	}
	if _, err := started(nil); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("deleted: got %v", err)
	}
}

// TestClaimsThatWaitAreBounded: of many claims at once, only so many wait for agent-sandbox. The others wait for them,
// and each gets its turn.
func TestClaimsThatWaitAreBounded(t *testing.T) {
	b, objects := newPooled(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const many = 3 * claimsAtOnce
	done := make(chan error, many)
	for range many {
		go func() {
			_, err := b.provider.claim(ctx, small)
			done <- err
		}()
	}
	for left := many; left > 0; left-- {
		want := min(left, claimsAtOnce)
		testkit.Until(t, "claims that wait", func() bool { return len(claimsOf(t, objects)) >= want })
		all := claimsOf(t, objects)
		if len(all) > claimsAtOnce {
			t.Fatalf("got %d claims that wait, want at most %d", len(all), claimsAtOnce)
		}
		if err := objects.Resource(claimKind).Namespace(space).Delete(t.Context(), all[0].GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Error("a claim that was deleted: got no error")
		}
	}
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
}

// TestAPodThatDoesNotAnswerIsGivenUp: another pod is claimed, because the node of the first may be gone. Each claim is
// removed.
func TestAPodThatDoesNotAnswerIsGivenUp(t *testing.T) {
	made := 0
	b, objects := newPooled(t, func(u *unstructured.Unstructured) {
		made++
		ready(u, "True", "Ready", "warm-1")
	})
	b.connector.client = &http.Client{Transport: unreachable{}}
	if _, err := b.Open(t.Context(), small); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
	}
	if left := len(claimsOf(t, objects)); made != tries || left != 0 {
		t.Errorf("got %d claims, %d of them left, want %d and none", made, left, tries)
	}
}
